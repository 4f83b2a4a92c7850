"""Run it: python -m examples.systems.zero --lp_launch_type=local_mp."""

import json
import tempfile
from dataclasses import replace
from typing import Any

import numpy as np
from absl import app, flags

import launchpad as lp
from examples._shared import checks, digits, pictures
from examples._shared.data import Array
from examples._shared.networks import Dense
from examples._shared.problem import Problem
from examples.systems.zero import claims, oracle
from examples.systems.zero.program import make_program

RANKS = flags.DEFINE_integer("ranks", 4, "How many ranks; half of them resume.", 2)
MICRO_BATCHES = flags.DEFINE_integer("micro_batches", 2, "Those of a batch; also 1 is tried.", 1)
STEPS = flags.DEFINE_integer("steps", None, "By default 40, or 4 if quick.", 4)
VOLUME = flags.DEFINE_string("volume", "", "On Kubernetes: where state is saved, as JSON.")


def main(_: list[str]) -> None:
    """Train at all stages. Kill a rank, and let fewer ranks go on. Compare with one process."""
    training, held_out = digits.load()
    steps = STEPS.value or (4 if checks.QUICK.value else 40)
    network = Dense((64, 1024, 64, 10))
    problem = Problem(training, network, 1, steps, slice_size=64, learning_rate=1e-3)
    parameters = problem.first_parameters
    for n in sorted({1, MICRO_BATCHES.value}):
        checks.phase(f"{RANKS.value} ranks at each stage; micro-batches: {n}")
        parameters = compare_stages(problem, RANKS.value, n)
    checks.phase(f"{RANKS.value} ranks, of which one is killed; then half as many go on")
    with tempfile.TemporaryDirectory() as folder:
        compare_resumed(problem, RANKS.value, MICRO_BATCHES.value, parameters, folder)
    losses = [problem.loss(each, steps) for each in (problem.first_parameters, parameters)]
    accuracy = problem.accuracy(parameters, held_out)
    print(f"loss {losses[0]:.3f}, after {steps} steps {losses[1]:.3f}; accuracy {accuracy:.3f}")
    checks.done()


def compare_stages(problem: Problem, ranks: int, n: int) -> Array:
    """Check each stage. Return the parameters of the last one."""
    running = lp.launch(make_program(problem, ranks, n, range(4)))
    running.wait()
    size = sum(problem.network.sizes)
    kept = {}
    shares = []
    parameters = problem.first_parameters
    for stage in range(4):
        trained = running.results(f"stage-{stage}")
        parameters = trained[0].parameters
        expected = oracle.expected(problem, n, stage >= 2, lambda _: ranks)
        claim = f"{ranks} ranks at stage {stage} learn what one process does, micro-batches: {n}"
        claims.check_parameters(claim, trained, expected)
        claims.check_memory(stage, trained, problem.network.sizes)
        kept[f"stage {stage}"] = sum(trained[0].kept) / size
        edges = running.edges().total(caller=f"stage-{stage}", server=f"stage-{stage}")
        n_bytes = edges.bytes_sent + edges.bytes_received
        if stage == 3:
            n_bytes -= 2 * size * (ranks - 1)  # the result is gathered once
        shares.append(n_bytes / (2 * size * ranks * problem.steps))
    claims.check_traffic(np.array(shares), ranks, n)
    if n == 1:
        pictures.bars("Memory of a rank", "bytes per parameter", kept)
    return parameters


def compare_resumed(problem: Problem, ranks: int, n: int, undisturbed: Array, folder: str) -> None:
    """Check a run with a kill. Then check that fewer ranks can go on from what it has saved."""
    place: dict[str, Any] = {"state": folder}
    if VOLUME.value:
        place = {"state": "zero", "state_volume": json.loads(VOLUME.value)}
    half = problem.steps // 2
    program = make_program(problem, ranks, n, save_every=half, victim=1)
    claims.check_kill(lp.run(program, **place)["stage-3"], undisturbed)
    few = ranks // 2
    longer = replace(problem, steps=problem.steps + half)
    trained = lp.run(make_program(longer, few, n, save_every=half), **place)["stage-3"]
    expected = oracle.expected(longer, n, True, lambda step: ranks if step < problem.steps else few)
    claim = f"{few} ranks go on from what {ranks} have saved, and learn what one process does"
    claims.check_parameters(claim, trained, expected)


if __name__ == "__main__":
    app.run(main)
