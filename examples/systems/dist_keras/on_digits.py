"""Four rules of dist-keras on the problem that all systems share."""

from functools import partial

import launchpad as lp
from examples._shared.problem import Learned, Problem
from examples.systems.dist_keras.algorithm import RULES
from examples.systems.dist_keras.program import make_program


def train(name: str, problem: Problem, kill: bool) -> Learned:
    """Train by a rule. Raise RuntimeError if the server should have been killed, and was not."""
    running = lp.launch(make_program(problem, {name: RULES[name]}, kill=name if kill else ""))
    trained = running.results("worker")[0][name]
    running.wait()
    if kill and trained.attempt == 1:
        raise RuntimeError(f"the server of {name} was to be killed half-way, and has lived on")
    return Learned(trained.centre.parameters, max(trained.centre.staleness), running.edges())


METHODS = {
    f"dist_keras, {name}": partial(train, name) for name in ("DOWNPOUR", "ADAG", "DynSGD", "AEASGD")
}
