"""Writers of transitions over n steps, and of sequences: which items they make of which steps."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from launchpad.replay.client import ReplayClient
from tests.helpers.direct_replay import Direct, items


@pytest.fixture
def client() -> ReplayClient:
    return ReplayClient(Direct())


# --- n steps -----------------------------------------------------------------------------------


@given(
    n=st.integers(1, 5),
    rewards=st.lists(st.integers(-3, 3), min_size=1, max_size=12),
    is_terminal=st.booleans(),
)
def test_transitions_are_as_defined(n: int, rewards: list[int], is_terminal: bool) -> None:
    client, g = ReplayClient(Direct()), 0.9
    end = len(rewards)
    discounts = [1.0] * (end - 1) + [0.0 if is_terminal else 1.0]

    with client.n_step_writer("t", n, g, items_per_call=3) as writer:
        for _ in range(2):  # the second episode is as the first one
            writer.add_first({"o": np.full(2, 0)})
            for t, reward in enumerate(rewards):
                writer.add(t, reward, {"o": np.full(2, t + 1)}, discounts[t], is_last=t == end - 1)

    ranges = [(max(0, t - n), t) for t in range(1, end + 1)]
    ranges += [(first, end) for first in range(max(0, end - n) + 1, end)]
    transitions = items(client)
    assert len(transitions) == 2 * len(ranges)
    for (first, stop), transition in zip(2 * ranges, transitions, strict=True):
        total, discount = 0.0, 1.0
        for i in range(first, stop):
            total += g ** (i - first) * discount * rewards[i]
            discount *= discounts[i]
        assert transition.observation["o"].tolist() == [first] * 2
        assert transition.next_observation["o"].tolist() == [stop] * 2
        assert transition.action == first
        assert transition.reward == pytest.approx(total, abs=1e-5)
        assert transition.discount == pytest.approx(g ** (stop - first - 1) * discount)
        assert transition.reward.dtype == transition.discount.dtype == np.float32


def test_buffers_that_a_loop_uses_again_do_not_change_transitions(client: ReplayClient) -> None:
    action, reward, discount = {"a": np.zeros(2)}, np.zeros(()), np.ones(())

    with client.n_step_writer("t", 2, 1.0) as writer:
        writer.add_first(np.zeros(1))
        for i in (1, 2):
            action["a"][:], reward[...], discount[...] = i, i, i / 2
            writer.add(action, reward, np.zeros(1), discount)

    early, late = items(client)
    assert (early.action["a"].tolist(), early.reward, early.discount) == ([1, 1], 1, 0.5)
    assert (late.action["a"].tolist(), late.reward, late.discount) == ([1, 1], 1 + 0.5 * 2, 0.5)


def test_a_priority_can_be_computed_from_the_transition(client: ReplayClient) -> None:
    def priority(transition: Any) -> float:
        return float(transition.reward * 10 + transition.next_observation[0])

    with client.n_step_writer("t", 1, 0.9, priority=priority) as writer:
        writer.add_first(np.zeros(1))
        for i in (1, 3):
            writer.add(0, float(i), np.full(1, 0.5))

    assert [each.info.priority for each in client.sample("t", 2)] == [10.5, 30.5]


def test_steps_outside_of_an_episode_are_refused(client: ReplayClient) -> None:
    writer = client.n_step_writer("t", 2, 0.9)

    with pytest.raises(ValueError, match="add before add_first"):
        writer.add(0, 0.0, 1.0)
    writer.add_first(0.0)
    with pytest.raises(ValueError, match="add_first within an episode"):
        writer.add_first(0.0)


# --- sequences ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("length", "period", "steps", "pads", "expected"),
    [
        (4, 2, 7, True, [[1, 2, 3, 4], [3, 4, 5, 6], [5, 6, 7, 0]]),
        (4, 2, 7, False, [[1, 2, 3, 4], [3, 4, 5, 6]]),
        (4, 4, 4, True, [[1, 2, 3, 4]]),
        (3, 5, 9, True, [[1, 2, 3], [6, 7, 8]]),
        (3, 5, 11, True, [[1, 2, 3], [6, 7, 8], [11, 0, 0]]),
        (3, 1, 2, True, [[1, 2, 0]]),
        (3, 1, 2, False, []),
    ],
)
def test_sequences_begin_every_period_and_are_padded_at_the_end(
    client: ReplayClient,
    length: int,
    period: int,
    steps: int,
    pads: bool,
    expected: list[list[int]],
) -> None:
    with client.sequence_writer("t", length, period, pad=pads) as writer:
        for _ in range(2):
            for i in range(steps):
                writer.append({"r": i + 1})
            writer.end_episode()

    assert [each["r"].tolist() for each in items(client)] == 2 * expected
