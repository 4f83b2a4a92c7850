"""Selectors follow their distributions and orders, whatever happens to the keys meanwhile."""

from __future__ import annotations

import math
import random
from collections import Counter
from collections.abc import Callable, Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from launchpad.replay.selectors import Fifo, Lifo, MaxHeap, MinHeap, Prioritized, Selector, Uniform

KINDS: list[Selector] = [Uniform(), Prioritized(0.7), Fifo(), Lifo(), MaxHeap(), MinHeap()]


def chi_square_z(counts: Mapping[int, int], expected: Mapping[int, float]) -> float:
    """How far the chi-square statistic is from its mean, in standard deviations."""
    n = sum(counts.values())
    assert counts.keys() <= {key for key, p in expected.items() if p > 0}
    likely = {key: p for key, p in expected.items() if p > 0}
    statistic = sum((counts.get(key, 0) - n * p) ** 2 / (n * p) for key, p in likely.items())
    freedom = len(likely) - 1
    return (statistic - freedom) / math.sqrt(2 * freedom)


def drawn(selector: Selector, n: int = 40_000) -> Counter[int]:
    selector.seed(7)
    return Counter(selector.sample()[0] for _ in range(n))


def churned(selector: Selector, seed: int = 3) -> dict[int, float]:
    """Inserts, updates and deletes at random; the keys that are left, with their priorities."""
    rng, priorities = random.Random(seed), dict[int, float]()
    for key in range(400):
        priorities[key] = rng.choice([0.0, 1e-3, 1.0, rng.random() * 10, 50.0])
        selector.insert(key, priorities[key])
        if rng.random() < 0.8:
            gone = rng.choice([*priorities])
            selector.delete(gone)
            del priorities[gone]
        if priorities and rng.random() < 0.5:
            other = rng.choice([*priorities])
            priorities[other] = rng.random() * 5
            selector.update(other, priorities[other])
    return priorities


@pytest.mark.parametrize("exponent", [None, 0.0, 0.5, 1.0, 2.0])
def test_keys_come_by_the_power_of_their_priorities_or_all_alike(exponent: float | None) -> None:
    selector = Uniform() if exponent is None else Prioritized(exponent)
    keys = churned(selector)
    weights = {key: p ** (exponent or 0.0) for key, p in keys.items()}
    if exponent is not None:
        weights |= {key: 0.0 for key, p in keys.items() if not p}
    expected = {key: weight / sum(weights.values()) for key, weight in weights.items()}

    counts = drawn(selector)

    assert abs(chi_square_z(counts, expected)) < 4
    for _ in range(100):
        key, probability = selector.sample()
        assert probability == pytest.approx(expected[key], rel=1e-9)


def test_prioritized_gives_all_alike_where_all_priorities_are_zero() -> None:
    selector = Prioritized(1.0)
    for key in range(10):
        selector.insert(key, 0.0)

    counts = drawn(selector)

    assert abs(chi_square_z(counts, dict.fromkeys(range(10), 0.1))) < 4


def test_prioritized_never_gives_a_key_of_weight_zero_however_the_weights_differ() -> None:
    selector = Prioritized(1.0)
    for key in range(2000):
        selector.insert(key, 0.0 if key % 2 else 10.0 ** (key % 300 - 250))

    assert all(selector.sample()[0] % 2 == 0 for _ in range(5000))


@pytest.mark.parametrize("number", [-1.0, math.nan, math.inf])
def test_a_priority_and_an_exponent_that_give_no_weight_are_refused(number: float) -> None:
    with pytest.raises(ValueError, match="Prioritized"):
        Prioritized(1.0).check(number)
    with pytest.raises(ValueError, match="priority_exponent"):
        Prioritized(number)
    with pytest.raises(ValueError, match="Fifo"):
        Fifo().check(math.nan)


Steps = list[tuple[str, int, float]]
STEPS = st.lists(
    st.tuples(st.sampled_from("iud"), st.integers(0, 12), st.sampled_from([0.0, 1.0, 2.0, 2.5]))
)


@given(steps=STEPS)
def test_orders_are_those_of_a_plain_model(steps: Steps) -> None:
    selectors: list[Selector] = [Fifo(), Lifo(), MinHeap(), MaxHeap()]
    inserted: dict[int, None] = {}
    set_at: dict[int, tuple[float, int]] = {}

    for number, (what, key, priority) in enumerate(steps):
        if what == "i" and key not in inserted:
            inserted[key], set_at[key] = None, (priority, number)
            for selector in selectors:
                selector.insert(key, priority)
        elif what == "u" and key in inserted:
            set_at[key] = priority, number
            for selector in selectors:
                selector.update(key, priority)
        elif what == "d" and key in inserted:
            del inserted[key], set_at[key]
            for selector in selectors:
                selector.delete(key)
        if not inserted:
            continue
        least = min(set_at, key=lambda k: set_at[k])
        most = min(set_at, key=lambda k: (-set_at[k][0], set_at[k][1]))
        expected = [*[*inserted][:1], *[*inserted][-1:], least, most]
        assert [selector.sample() for selector in selectors] == [(key, 1.0) for key in expected]
        assert {len(selector) for selector in selectors} == {len(inserted)}


@pytest.mark.parametrize("selector", KINDS, ids=repr)
def test_one_that_was_cleared_is_empty_and_can_be_filled_again(selector: Selector) -> None:
    churned(selector)

    selector.clear()

    assert len(selector) == 0
    with pytest.raises(IndexError):
        selector.sample()
    selector.insert(5, 1.0)
    assert selector.sample() == (5, 1.0)
    with pytest.raises(KeyError):
        selector.delete(6)
    with pytest.raises(KeyError):
        selector.update(6, 1.0)
    selector.clear()


def test_a_heap_forgets_entries_that_mean_nothing_any_more() -> None:
    heap = MinHeap()
    for key in range(10):
        heap.insert(key, 1.0)

    for round_ in range(1000):
        heap.update(round_ % 10, float(round_))

    assert len(heap._heap) < 200


@pytest.mark.parametrize("kind", [Uniform, lambda: Prioritized(0.5)])
def test_the_same_seed_gives_the_same_keys(kind: Callable[[], Selector]) -> None:
    selectors = kind(), kind()
    for selector in selectors:
        churned(selector)

    assert drawn(selectors[0], 100) == drawn(selectors[1], 100)
