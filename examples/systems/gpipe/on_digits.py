"""GPipe on the problem that all systems share, with more layers: one for each stage."""

from collections.abc import Callable
from dataclasses import replace

import numpy as np

import launchpad as lp
from examples._shared.networks import Dense
from examples._shared.problem import Learned, Problem
from examples.systems.gpipe.program import make_program
from examples.systems.gpipe.training import Run, Training

WIDTHS = (64, 32, 24, 16, 10)


def learn(problem: Problem, is_killed: bool) -> Learned:
    """Train with four stages. The third may be killed half-way; raise RuntimeError if it was not."""
    deeper = replace(problem, network=Dense(WIDTHS))
    training = Training(
        problem.training,
        problem.steps,
        WIDTHS,
        batch_size=problem.slice_size * problem.workers,
        learning_rate=problem.learning_rate,
    )
    run = Run(micro_batches=4, rematerializes=True, is_disturbed=is_killed)
    running = lp.launch(make_program(training, [run], len(WIDTHS) - 1))
    stages = running.results("stage")
    running.wait()
    if is_killed and stages[0][1] == 1:
        raise RuntimeError("a stage was to be killed, and all ended in attempt 1")
    parameters = np.concatenate([batches[-1].parameters for batches, _ in stages])
    return Learned(parameters, staleness=0, edges=running.edges(), problem=deeper)


METHODS: dict[str, Callable[[Problem, bool], Learned]] = {"gpipe, more layers": learn}
