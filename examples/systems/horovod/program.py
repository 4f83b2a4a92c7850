"""The graph: ranks that train together. If one is lost, all are started again.

rank 0 ◀──▶ rank 1
  ▲   ╲   ╱   ▲
  │     ╳     │       parts of gradients, over edges of the graph or by gloo
  ▼   ╱   ╲   ▼
rank 2 ◀──▶ rank 3
"""

from collections.abc import Callable
from typing import Any

import launchpad as lp
from examples._shared.problem import Problem
from examples.systems.horovod.rank import Options, train


def make_program(
    problem: Problem,
    options: Options | None = None,
    kill_at: int | None = None,
    train: Callable[..., Any] = train,
    backend: str = "courier",
) -> lp.Program:
    """Return the graph: a rank for each of the problem's workers. Each calls `train`."""
    program = lp.Program("horovod")
    arguments = problem, options or Options(), kill_at
    with program.group("rank", restart=lp.RestartPolicy(scope="group")):
        for _ in range(problem.workers):
            program.add_node(lp.CollectiveNode(train, *arguments, backend=backend))
    return program
