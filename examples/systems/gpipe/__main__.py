"""Run it: python -m examples.systems.gpipe --lp_launch_type=local_mp."""

import math
from collections.abc import Sequence

import numpy as np
from absl import app, flags

import launchpad as lp
from examples._shared import checks, digits, pictures
from examples._shared.networks import Dense
from examples._shared.problem import Problem
from examples.systems.gpipe import claims
from examples.systems.gpipe.program import make_program
from examples.systems.gpipe.stage import Batch, Run

STAGES = flags.DEFINE_integer("stages", 4, "The most stages; also 1 and 2 are tried.", 1, 8)
MICRO_BATCHES = flags.DEFINE_integer("micro_batches", 8, "The most; also 1 and 4 are tried.", 1)
STEPS = flags.DEFINE_integer("steps", None, "Batches of 64 digits; by default 80, or 20 if quick.")

WIDTHS = (64, 48, 40, 32, 32, 24, 24, 16, 10)


def main(_: list[str]) -> None:
    """Train with 1, 2 and 4 stages, kill one of the four, and check what the paper claims."""
    training, held_out = digits.load()
    steps = STEPS.value or (20 if checks.QUICK.value else 80)
    problem = Problem(training, Dense(WIDTHS), 1, steps, slice_size=64, learning_rate=0.2)
    alone = problem.train_alone()
    claims.check_cut(problem.network.sizes, STAGES.value)
    runs = [Run(m) for m in sorted({1, 4, MICRO_BATCHES.value})]
    killed = runs[-1]._replace(victim=STAGES.value // 2)
    trained: dict[Run, Sequence[Batch]] = {}
    for n_stages in sorted({1, 2, STAGES.value}):
        is_last = n_stages == STAGES.value
        then = f"; then stage {killed.victim} is killed" if is_last else ""
        checks.phase(f"{n_stages} stages, {len(runs)} runs{then}")
        own_runs = [*runs, killed] if is_last else runs
        stages = lp.run(make_program(problem, n_stages, own_runs))["stage"]
        trained = dict(zip(own_runs, zip(*stages, strict=True), strict=True))
        claims.check_equal(trained, alone, n_stages)
        claims.check_bubble(trained, n_stages)
        claims.check_kept(trained, problem, n_stages)
    claims.check_killed(trained[killed], trained[runs[-1]])
    loss = problem.loss(problem.first_parameters, 0)
    parameters = np.concatenate([batch.parameters for batch in trained[killed]])
    accuracy = problem.accuracy(parameters, held_out)
    loss_after = trained[killed][-1].loss
    print(f"loss {loss:.3f}, after {steps} batches {loss_after:.3f}; accuracy {accuracy:.3f}")
    title = f"{STAGES.value} stages, {MICRO_BATCHES.value} micro-batches"
    traces = [batch.trace for batch in trained[runs[-1]]]
    pictures.traces(title, traces, until=math.inf)
    checks.done()


if __name__ == "__main__":
    app.run(main)
