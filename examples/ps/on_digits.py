"""The three modes on the problem by which parameter servers are compared."""

from functools import partial

import launchpad as lp
from examples._shared.problem import Learned, Problem
from examples.ps.kill import kill_a_shard
from examples.ps.program import SHARDS, make_program


def train(mode: str, problem: Problem, kill: bool) -> Learned:
    """Train with two shards, of which one is killed half-way if that is asked for."""
    running = lp.launch(make_program(problem, mode))
    if kill:
        kill_a_shard(running, problem.steps // 2)
    trained = running.results("worker")[0]
    running.wait()
    return Learned(trained.parameters, max(trained.staleness), running.edges())


METHODS = {f"ps, {mode}": partial(train, mode) for mode in SHARDS}
