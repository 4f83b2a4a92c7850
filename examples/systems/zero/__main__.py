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
STEPS = flags.DEFINE_integer("steps", None, "By default 40, or 4 if quick.", 4)
VOLUME = flags.DEFINE_string("volume", "", "On Kubernetes: where state is saved, as JSON.")


def main(_: list[str]) -> None:
    """Train at all stages. Kill a rank, and let fewer ranks go on. Compare with one process."""
    training, held_out = digits.load()
    ranks = RANKS.value
    steps = STEPS.value or (4 if checks.QUICK.value else 40)
    network = Dense((64, 1024, 64, 10))
    problem = Problem(training, network, 1, steps, slice_size=64, learning_rate=1e-3)
    compare_stages(problem, ranks, 1)
    parameters = compare_stages(problem, ranks, 2)

    few = ranks // 2
    half = steps // 2
    checks.phase(f"{ranks} ranks, of which one is killed; then {few} go on")
    killing = make_program(problem, ranks, 2, save_every=half, victim=1)
    longer = replace(problem, steps=steps + half)
    with tempfile.TemporaryDirectory() as folder:
        place: dict[str, Any] = {"state": folder}
        if VOLUME.value:
            place = {"state": "zero", "state_volume": json.loads(VOLUME.value)}
        claims.check_kill(lp.run(killing, **place)["stage-3"], parameters)
        resuming = make_program(longer, few, 2, save_every=half)
        trained = lp.run(resuming, **place)["stage-3"]
    expected = oracle.expected(longer, 2, True, lambda step: ranks if step < steps else few)
    claim = f"{few} ranks go on from what {ranks} have saved, and learn what one process does"
    claims.check_parameters(claim, trained, expected)

    losses = [problem.loss(each, steps) for each in (problem.first_parameters, parameters)]
    accuracy = problem.accuracy(parameters, held_out)
    print(f"loss {losses[0]:.3f}, after {steps} steps {losses[1]:.3f}; accuracy {accuracy:.3f}")
    checks.done()


def compare_stages(problem: Problem, ranks: int, n: int) -> Array:
    """Check each stage, with n micro-batches in a batch. Return the parameters of the last stage."""
    checks.phase(f"{ranks} ranks at each stage; micro-batches: {n}")
    running = lp.launch(make_program(problem, ranks, n, range(4)))
    running.wait()
    results = [running.results(f"stage-{stage}") for stage in range(4)]
    size = sum(problem.network.sizes)
    kept = {}
    shares = []
    for stage, trained in enumerate(results):
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
    parameters: Array = results[3][0].parameters
    return parameters


if __name__ == "__main__":
    app.run(main)
