"""What limiters let through, and which bounds make no sense."""

from __future__ import annotations

import contextlib
import math
import random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import launchpad as lp
from launchpad.replay.rate_limiters import MinSize, QueueLimiter, RateLimiter, SampleToInsertRatio


def at_once(limiter: RateLimiter, what: str, most: int = 1000) -> int:
    """How many inserts or samples there are until it says no."""
    for n in range(most):
        if not getattr(limiter, f"can_{what}")():
            return n
        getattr(limiter, what)()
    return most


def test_min_size_lets_samples_wait_for_items_and_inserts_never() -> None:
    limiter = MinSize(3)

    for _ in range(3):
        assert not limiter.can_sample()
        limiter.insert()
    assert at_once(limiter, "sample") == at_once(limiter, "insert") == 1000
    for _ in range(1001):
        limiter.delete()
    assert not limiter.can_sample()


def test_a_ratio_is_kept_within_its_buffer_or_bounds_once_there_are_enough() -> None:
    limiter = SampleToInsertRatio(samples_per_insert=4, min_size_to_sample=10, error_buffer=8)
    bounded = SampleToInsertRatio(2.0, 1, (-10.0, 4.0))

    assert at_once(limiter, "insert") == 12  # 10, and 2 more, for 8 samples
    assert at_once(limiter, "sample") == 16  # from 8 too few to 8 too many
    assert at_once(limiter, "insert") == 4
    assert at_once(limiter, "sample") == 16
    assert (bounded.min_diff, bounded.max_diff) == (-10.0, 4.0)
    assert [at_once(bounded, "insert"), at_once(bounded, "sample")] == [2, 14]


def test_what_the_difference_has_been_is_noted_from_the_first_moment_with_enough_items() -> None:
    limiter = SampleToInsertRatio(2, min_size_to_sample=3, error_buffer=4)
    at_once(limiter, "insert")
    at_once(limiter, "sample")

    assert (limiter.lowest_diff, limiter.highest_diff) == (2.0, 10.0)
    limiter.reset()
    at_once(limiter, "insert", most=2)
    assert limiter.lowest_diff > limiter.highest_diff  # there was no such moment


def test_a_queue_takes_as_many_as_it_holds_and_gives_each_once() -> None:
    limiter = QueueLimiter(3)

    assert at_once(limiter, "insert") == 3
    for _ in range(3):
        assert limiter.can_sample()
        limiter.sample()
        limiter.delete()
    assert not limiter.can_sample()
    assert at_once(limiter, "insert") == 3


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda: MinSize(0), "min_size_to_sample is 1 or more"),
        (lambda: QueueLimiter(0), "QueueLimiter has a size, a whole number of 1 or more"),
        (lambda: SampleToInsertRatio(0, 1, 10), "samples_per_insert is positive"),
        (lambda: SampleToInsertRatio(4, 1, 3), "a buffer of 4 or more"),
        (lambda: SampleToInsertRatio(1, 1, 0.5), "forever"),
        (lambda: SampleToInsertRatio(1, 5, (6, 20)), "nothing could ever be sampled"),
        (lambda: RateLimiter(1.0, 1, 3.0, 2.0), "min_diff is at most max_diff"),
        (lambda: RateLimiter(math.inf, 1, 0.0, 2.0), "positive and finite"),
        (lambda: RateLimiter(10, 1, 0, 5), "for each other forever: expected max_diff >= 10"),
        (lambda: RateLimiter(0.5, 1, 0, 0.5), "expected max_diff >= 1"),
    ],
)
def test_bounds_that_would_block_for_ever_are_refused(make: object, says: str) -> None:
    with pytest.raises(lp.DefinitionError, match=says):
        make()  # type: ignore[operator]


def test_numbers_of_numpy_are_bounds_as_pythons_are() -> None:
    limiter = SampleToInsertRatio(np.uint8(200), np.uint8(2), (np.int8(100), np.int16(900)))
    narrow = RateLimiter(np.float32(0.5), np.uint8(1), np.int8(0), np.uint8(1))

    for _ in range(4):
        limiter.insert()
    assert (limiter.diff, type(limiter.diff)) == (800.0, float)
    assert not limiter.can_insert()
    assert narrow.max_diff == 1.0


HALVES = st.integers(-20, 60).map(lambda n: n / 2)


@given(
    samples_per_insert=st.sampled_from([0.1, 0.25, 1 / 3, 0.5, 1, 1.5, 2, 3, 10]),
    min_size=st.integers(1, 4),
    min_diff=HALVES,
    width=st.integers(0, 30).map(lambda n: n / 2),
    seed=st.integers(0, 1000),
)
def test_whatever_bounds_are_accepted_inserts_or_samples_go_on(
    samples_per_insert: float, min_size: int, min_diff: float, width: float, seed: int
) -> None:
    choose = random.Random(seed)
    with contextlib.suppress(lp.DefinitionError):
        limiter = RateLimiter(samples_per_insert, min_size, min_diff, min_diff + width)

        for _ in range(300):
            possible = [what for what in ("insert", "sample") if getattr(limiter, f"can_{what}")()]
            assert possible
            getattr(limiter, choose.choice(possible))()


def test_the_narrowest_bounds_that_go_on_are_accepted() -> None:
    RateLimiter(10, 1, 0, 10)
    RateLimiter(0.1, 1, 0, 1.1)
    RateLimiter(0.5, 1, 0, 1)
    RateLimiter(1, 1, -math.inf, 0)
    RateLimiter(1, 1, 0, math.inf)
