from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

import launchpad as lp
from examples._shared import logical_time, networks
from examples._shared.data import Array, Data
from examples._shared.logical_time import Event
from examples.systems.pipedream import claims, oracle
from examples.systems.pipedream.algorithm import (
    BACKWARD,
    FORWARD,
    STASHING,
    Layers,
    Part,
    Plan,
    cut,
    in_flight,
    schedule,
)
from examples.systems.pipedream.program import RATE, WIDTHS, add_pipeline
from examples.systems.pipedream.stage import AVERAGE, worker_of
from tests.examples.conftest import noise

THREE = [Part(2, 1), Part(1, 1), Part(2, 1)]


@pytest.fixture
def batches() -> list[Data]:
    return [noise(24)[slice(i, i + 2)] for i in range(0, 24, 2)]


def test_the_pipeline_of_no_plan_waits_for_ever() -> None:
    for plan in oracle.all_plans(layers=4, machines=4):
        workers = [(k, r) for k, part in enumerate(plan) for r in range(part.replicas)]

        spans = logical_time.replay([trace(plan, k, r, 24) for k, r in workers])

        assert sum(len(own) for own in spans) >= 2 * 24 * len(plan)


def test_without_replicas_the_oracle_is_the_equation(batches: list[Data]) -> None:
    history = [networks.first_parameters(WIDTHS)]
    for t, batch in enumerate(batches):
        late = [cut(WIDTHS, THREE, history[max(0, t - 2 + k)])[k][1] for k in range(3)]
        gradient = networks.gradient(WIDTHS, np.concatenate(late), batch)
        history.append(history[-1] - RATE * gradient)

    assert np.array_equal(oracle.train(WIDTHS, THREE, batches, RATE, sync=False), history[-1])


def test_the_check_of_weights_refuses_one_that_is_off_by_a_bit(batches: list[Data]) -> None:
    truth = oracle.train(WIDTHS, THREE, batches, RATE, sync=False)
    claims.check_weights("right", returned(truth), THREE, STASHING, batches)

    truth[0] = np.nextafter(truth[0], 1)
    with pytest.raises(ArithmeticError, match="right"):
        claims.check_weights("right", returned(truth), THREE, STASHING, batches)


def test_a_plan_for_another_network_is_refused(batches: list[Data]) -> None:
    with pytest.raises(ValueError, match="a plan for 2 layers; the network has 5"):
        add_pipeline(lp.Program("short"), "short", [Part(2, 1)], batches[0], 12)


def trace(plan: Plan, stage: int, replica: int, minibatches: int) -> list[Event]:
    """Return what a worker does, and what it waits for: its neighbours, and the others of its stage."""
    mine = range(replica, minibatches, plan[stage].replicas)
    events = []
    for kind, minibatch in schedule(mine, in_flight(plan, stage)):
        source = stage - 1 if kind == FORWARD else stage + 1
        events.append(Event(kind, minibatch, worker_of(plan, source, minibatch)))
        if kind == BACKWARD and mine.step > 1:
            events.append(Event(AVERAGE, minibatch))
            turns = range(minibatch - replica, minibatch - replica + mine.step)
            others = [turn for turn in turns if turn != minibatch]
            events += [Event(AVERAGE, turn, worker_of(plan, stage, turn)) for turn in others]
    return events


def returned(weights: Array) -> Sequence[tuple[Layers, int, list[Event]]]:
    """Return what the workers of three stages return that have these weights."""
    parts = cut(WIDTHS, THREE, weights)
    return [(Layers(own, False, STASHING, RATE, {12: part}), 1, []) for own, part in parts]
