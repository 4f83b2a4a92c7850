"""Compare many systems on one problem, in a table: python -m examples.on_digits --lp_launch_type=local_mp.

Each system trains softmax regression twice on the same slices of the same batches: undisturbed, and with a
kill half-way.
"""

import importlib
import json
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
from absl import app, flags

from examples._shared import digits
from examples._shared.checks import JSON, QUICK
from examples._shared.data import Array
from examples._shared.places import module_of
from examples._shared.problem import Learned, Problem

SYSTEMS = ["ps", "byteps", "angel", "dist_keras", "elephas", "horovod", "gpipe", "big_dl"]
ONLY = flags.DEFINE_list("only", SYSTEMS, "Which systems.")
Row = tuple[str, str, str, str, str, str]
HEAD: Row = (
    "method",
    "held-out digits recognised",
    "bytes a step and worker",
    "staleness at most",
    "from one process",
    "after a kill",
)


def main(_: list[str]) -> None:
    """Train with one system after the other, then print the table."""
    problem = Problem(steps=100 if QUICK.value else 400)
    alone = problem.train_alone()
    rows: list[Row] = [("one process", accuracy(alone, problem), "0", "0", "0", "–")]
    for system in ONLY.value:
        methods = importlib.import_module(f"{module_of(system)}.on_digits").METHODS
        for method, train in methods.items():
            rows.append(row(method, train, problem, alone))
    print(table(HEAD, *rows))
    if JSON.value:
        Path(JSON.value).write_text(json.dumps(rows, indent=1, ensure_ascii=False))


def row(
    method: str, train: Callable[[Problem, bool], Learned], problem: Problem, alone: Array
) -> Row:
    """Train twice, the second time with a kill, and return the row of the table."""
    undisturbed = train(problem, False)
    disturbed = train(problem, True)
    if undisturbed.problem:
        problem = undisturbed.problem
        alone = undisturbed.problem.train_alone()
    n_bytes = undisturbed.edges.total().bytes_sent + undisturbed.edges.total().bytes_received
    if np.array_equal(undisturbed.parameters, disturbed.parameters):
        after_a_kill = "the same bits"
    else:
        share = accuracy(disturbed.parameters, problem)
        apart = distance(disturbed.parameters, alone)
        after_a_kill = f"{share} recognised, {apart} from one process"
    return (
        method,
        accuracy(undisturbed.parameters, problem),
        f"{n_bytes / problem.steps / problem.workers:,.0f}",
        str(undisturbed.staleness),
        distance(undisturbed.parameters, alone),
        after_a_kill,
    )


def accuracy(parameters: Array, problem: Problem) -> str:
    """Return the share of the held-out digits that these parameters recognise."""
    return f"{problem.accuracy(parameters, digits.load()[1]):.3f}"


def distance(parameters: Array, alone: Array) -> str:
    """Return how far the parameters are from those of one process, divided by the norm of the latter."""
    return f"{np.linalg.norm(parameters - alone) / np.linalg.norm(alone):.2g}"


def table(head: Sequence[str], *rows: Sequence[str]) -> str:
    """Return a table of Markdown."""
    widths = [max(map(len, column)) for column in zip(head, *rows, strict=True)]
    lines = [head, ["-" * width for width in widths], *rows]
    return "\n".join("| " + " | ".join(map(str.ljust, line, widths)) + " |" for line in lines)


if __name__ == "__main__":
    app.run(main)
