"""A worker: it trains a replica by each rule, and exchanges with the rule's server."""

import itertools
from collections.abc import Mapping
from typing import NamedTuple

import threadpoolctl

import launchpad as lp
from examples._shared.data import Array
from examples._shared.problem import Problem
from examples.systems.dist_keras.algorithm import Centre, Rule
from examples.systems.dist_keras.server import Server

Client = lp.CourierClient[Server]


class Trained(NamedTuple):
    """The result of a worker for a rule: its replica, and the server's centre and attempt at the end."""

    replica: Array
    centre: Centre
    attempt: int


def work(
    problem: Problem, rules: Mapping[str, Rule], servers: Mapping[str, Client]
) -> dict[str, Trained]:
    """Train a replica by each rule."""
    threadpoolctl.threadpool_limits(1)  # with more, the bits depend on how many
    replicas = {name: train(problem, rule, servers[name]) for name, rule in rules.items()}
    lp.barrier("all have trained")
    return {name: Trained(replicas[name], *servers[name].trained()) for name in rules}


def train(problem: Problem, rule: Rule, server: Client) -> Array:
    """Train a replica by a rule, and return it."""
    worker = lp.current().replica_index
    steps = itertools.count()

    def gradient(parameters: Array) -> Array:
        return problem.gradient(parameters, next(steps), worker)

    rate = rule.rate * problem.learning_rate
    replica = rule.worker(problem.first_parameters, gradient, rate, rule.window)
    pulled = server.pull(0)
    lp.barrier("all have pulled")  # so that all but the first to commit are stale

    def pull() -> Array:
        nonlocal pulled
        if number:
            pulled = server.pull(number)
        return pulled[0]

    for number in range(problem.steps // rule.window):
        delta = replica.round(pull)
        server.commit(worker, number, delta, pulled[1])
    return replica.parameters
