from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from examples._shared import logical_time, networks
from examples._shared.data import Array
from examples._shared.logical_time import Event
from examples._shared.networks import Dense
from examples._shared.problem import Problem
from examples.systems.pipedream import claims, oracle
from examples.systems.pipedream.algorithm import Layers, Part, Plan, cut, in_flight, schedule
from examples.systems.pipedream.program import make_program
from examples.systems.pipedream.stage import worker_of
from tests.examples.conftest import noise

THREE = [Part(2, 1), Part(1, 1), Part(2, 1)]


@pytest.fixture
def problem() -> Problem:
    network = Dense((64, 8, 8, 8, 8, 10))
    return Problem(noise(24), network, workers=1, steps=12, slice_size=2, learning_rate=0.05)


def test_the_pipeline_of_no_plan_waits_for_ever() -> None:
    for plan in oracle.all_plans(layers=4, machines=4):
        workers = [(k, r) for k, part in enumerate(plan) for r in range(part.replicas)]

        spans = logical_time.replay([trace(plan, k, r, 24) for k, r in workers])

        assert sum(len(own) for own in spans) >= 2 * 24 * len(plan)


def test_without_replicas_the_oracle_is_the_equation(problem: Problem) -> None:
    history = [problem.first_parameters]
    for t in range(problem.steps):
        stages = [cut(problem.network, THREE, history[max(0, t - 2 + k)])[k] for k in range(3)]
        gradient = networks.gradient(problem.network, np.concatenate(stages), problem.batch(t))
        history.append(history[-1] - problem.learning_rate * gradient)

    assert np.array_equal(np.concatenate(oracle.train(problem, THREE)), history[-1])


def test_the_check_of_weights_refuses_one_that_is_off_by_a_bit(problem: Problem) -> None:
    truth = oracle.train(problem, THREE)
    claims.check_weights("right", returned(problem, truth), problem, THREE)

    truth[0][0] = np.nextafter(truth[0][0], 1)
    with pytest.raises(ArithmeticError, match="right"):
        claims.check_weights("right", returned(problem, truth), problem, THREE)


def test_a_plan_for_another_network_is_refused(problem: Problem) -> None:
    with pytest.raises(ValueError, match="a plan for 2 layers; the network has 5"):
        make_program(problem, {"short": [Part(2, 1)]})


def test_minibatches_that_are_no_whole_rounds_of_the_replicas_are_refused(problem: Problem) -> None:
    with pytest.raises(ValueError, match="12 minibatches aren't whole rounds of 5 replicas"):
        make_program(problem, {"five": [Part(5, 5)]})


def trace(plan: Plan, stage: int, replica: int, minibatches: int) -> list[Event]:
    """Return what a worker does, and what it waits for: its neighbours, and the others of its stage."""
    mine = range(replica, minibatches, plan[stage].replicas)
    events = []
    for kind, minibatch in schedule(mine, in_flight(plan, stage)):
        source = stage - 1 if kind == "forward" else stage + 1
        events.append(Event(kind, minibatch, worker_of(plan, source, minibatch)))
        if kind == "backward" and mine.step > 1:
            events.append(Event("average", minibatch))
            turns = range(minibatch - replica, minibatch - replica + mine.step)
            others = [turn for turn in turns if turn != minibatch]
            events += [Event("average", turn, worker_of(plan, stage, turn)) for turn in others]
    return events


def returned(problem: Problem, weights: Sequence[Array]) -> list[Layers]:
    """Return what the workers of stages with these weights return."""
    return [Layers(problem.network, k, {12: own}) for k, own in enumerate(weights)]
