"""Angel's methods on a problem that all systems share. Each gradient has all keys."""

from functools import partial

import launchpad as lp
from examples._shared.problem import Learned, Problem
from examples.systems.angel.program import make_program


def train(problem: Problem, kill: bool, staleness: float = 1, group_size: int = 1) -> Learned:
    """Train with slack between workers, or groups of them. A shard may kill itself half-way."""
    kills = [problem.steps // 2] if kill else []
    running = lp.launch(make_program(problem, staleness, group_size, kills=kills))
    running.wait()
    trained = running.results("worker")[0]
    most = max(shard.staleness for shard in trained.shards)
    return Learned(trained.weights, most, running.edges())


METHODS = {"angel, SSP": train, "angel, hybrid": partial(train, group_size=2)}
