"""GPipe on the problem that all systems share, with more layers: one for each stage."""

from collections.abc import Callable
from dataclasses import replace

import numpy as np

import launchpad as lp
from examples._shared.networks import Dense
from examples._shared.problem import Learned, Problem
from examples.systems.gpipe.program import make_program
from examples.systems.gpipe.stage import Run


def learn(problem: Problem, is_killed: bool) -> Learned:
    """Train with four stages. The third may be killed half-way; raise RuntimeError if it was not."""
    deeper = replace(problem, network=Dense((64, 32, 24, 16, 10)))
    run = Run(micro_batches=4, victim=2 if is_killed else None)
    running = lp.launch(make_program(deeper, 4, [run]))
    batches = [last for (last,) in running.results("stage")]
    running.wait()
    if is_killed and batches[0].attempt == 1:
        raise RuntimeError("a stage was to be killed, and all ended in attempt 1")
    parameters = np.concatenate([batch.parameters for batch in batches])
    return Learned(parameters, staleness=0, edges=running.edges(), problem=deeper)


METHODS: dict[str, Callable[[Problem, bool], Learned]] = {"gpipe, more layers": learn}
