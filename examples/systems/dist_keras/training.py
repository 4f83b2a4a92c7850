"""The training of rules, each on several seeds side by side: parameters have a row for each seed."""

import itertools
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from examples._shared import networks
from examples._shared.data import Array, Data
from examples._shared.problem import Problem
from examples.systems.dist_keras.algorithm import (
    AdagReplica,
    Centre,
    DynSgdCentre,
    ElasticReplica,
    MomentumReplica,
    Replica,
)
from examples.systems.dist_keras.averaging import AveragingCentre, EnsembleCentre


@dataclass(frozen=True)
class Rule:
    """An optimizer.

    Attributes:
        worker: The worker's part of the optimizer.
        server: The server's part of it.
        learning_rate: The learning rate of a worker's steps.
        window: How many steps a worker makes between two commits.
        seeds: How many models are trained, each from other parameters and on other batches. A single one
            begins with the parameters of the problem.
    """

    worker: type[Replica]
    server: type[Centre]
    learning_rate: float
    window: int
    seeds: int = 1


@dataclass(frozen=True)
class Training:
    """Rules that are trained on a problem, one after the other."""

    problem: Problem
    rules: Mapping[str, Rule]

    def first_parameters(self, rule: Rule) -> Array:
        if rule.seeds == 1:
            return np.stack([self.problem.first_parameters])
        widths = self.problem.widths
        return np.stack([networks.first_parameters(widths, seed) for seed in range(rule.seeds)])

    def replica(self, rule: Rule, worker: int) -> Replica:
        """Return the worker's part of the rule."""
        batches = itertools.count()

        def gradient(rows: Array) -> Array:
            batch = next(batches)
            steps = self.problem.steps
            slices = [self.problem.slice(i * steps + batch, worker) for i in range(len(rows))]
            images = np.stack([each.inputs for each in slices])
            labels = np.stack([each.targets for each in slices])
            return networks.gradient(self.problem.widths, rows, Data(images, labels))

        return rule.worker(self.first_parameters(rule), gradient, rule.learning_rate, rule.window)

    def centre(self, rule: Rule) -> Centre:
        return rule.server(self.first_parameters(rule), self.problem.workers)

    def rounds(self, rule: Rule) -> int:
        """Return how often a worker commits."""
        return self.problem.steps // rule.window


def rules(problem: Problem, seeds: int = 1) -> dict[str, Rule]:
    """Return all rules of dist-keras. The asynchronous ones that are compared get this number of seeds."""
    rate = problem.learning_rate
    steps = problem.steps
    return {
        "DOWNPOUR": Rule(Replica, Centre, rate, 5, seeds),
        "ADAG": Rule(AdagReplica, Centre, 4 * rate, 5, seeds),
        "DynSGD": Rule(Replica, DynSgdCentre, 1.4 * rate, 5, seeds),
        "AEASGD": Rule(ElasticReplica, Centre, 4 * rate, 10, seeds),
        "EAMSGD": Rule(MomentumReplica, Centre, 0.4 * rate, 10),
        "averaging": Rule(Replica, AveragingCentre, 4 * rate, steps // 5),
        "ensemble": Rule(Replica, EnsembleCentre, 4 * rate, steps),
    }
