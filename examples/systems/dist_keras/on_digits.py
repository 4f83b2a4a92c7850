"""Four rules of dist-keras on the problem that all systems share."""

from collections.abc import Callable
from functools import partial

import launchpad as lp
from examples._shared.problem import Learned, Problem
from examples.systems.dist_keras.program import make_program
from examples.systems.dist_keras.training import Training, rules


def train(name: str, problem: Problem, kill: bool) -> Learned:
    """Train by a rule. Raise RuntimeError if the server should have been killed, and was not."""
    training = Training(problem, {name: rules(problem)[name]})
    running = lp.launch(make_program(training, kill=name if kill else ""))
    trained = running.results("worker")[0][name]
    running.wait()
    if kill and trained.attempt == 1:
        raise RuntimeError(
            f"the server of {name} was to be killed half-way, and has lived to the end"
        )
    centre = trained.centre
    staleness = max(commit.staleness for commit in centre.record)
    return Learned(centre.parameters[0], staleness, running.edges())


METHODS: dict[str, Callable[[Problem, bool], Learned]] = {
    f"dist_keras, {name}": partial(train, name) for name in ("DOWNPOUR", "ADAG", "DynSGD", "AEASGD")
}
