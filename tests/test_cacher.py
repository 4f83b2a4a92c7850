"""The cache of a CacherNode, in front of a real server, with a clock that the test sets."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

import launchpad as lp
from launchpad import courier
from launchpad.nodes.cacher import Cache, Entry
from tests.waiting import until

REFRESH_S, STALE_S, DEADLINE_S = 0.1, 1.0, 20.0


class Target:
    """Answers with how often it was asked; `held` and `blocked` wait until they are let go."""

    def __init__(self) -> None:
        self.asked: list[Any] = []
        self.is_asked = threading.Event()
        self.go = threading.Event()

    def count(self, *args: Any, **kwargs: Any) -> int:
        self.asked.append((args, kwargs))
        return len(self.asked)

    def held(self) -> int:
        count = self.count()
        self.is_asked.set()
        self.go.wait(DEADLINE_S)
        return count

    def fail(self) -> None:
        self.count()
        raise ValueError("not today")

    def stream(self) -> Iterator[int]:
        yield self.count()


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def entry_of(cache: Cache, method: str) -> Entry:
    return next(entry for entry in cache._entries.values() if entry.method == method)


@pytest.fixture
def target() -> Target:
    return Target()


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def server(target: Target, tmp_path: Path) -> Iterator[courier.Server]:
    server = courier.Server("target", address=f"unix:{tmp_path}/s")
    server.bind_object(target)
    server.start()
    yield server
    target.go.set()
    server.stop()


@pytest.fixture
def cache(server: courier.Server, clock: Clock) -> Iterator[Cache]:
    client: courier.Client[Any]
    with courier.Client(server.address) as client:
        yield Cache(client, REFRESH_S, STALE_S, clock)


@pytest.fixture
def background(target: Target) -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(4) as pool:
        yield pool
        target.go.set()


def test_a_copy_is_given_out_until_it_is_refreshed(cache: Cache) -> None:
    first = [cache.call("count", (), {}) for _ in range(3)]

    cache.refresh_all()

    assert first == [1, 1, 1]
    until(lambda: cache.call("count", (), {}) == 2)


def test_arguments_tell_calls_apart_and_their_order_does_not(cache: Cache, target: Target) -> None:
    first = cache.call("count", (1,), {"a": 1, "b": 2})

    assert cache.call("count", (1,), {"b": 2, "a": 1}) == first
    assert cache.call("count", (2,), {"a": 1, "b": 2}) == 2
    assert cache.call("count", (1,), {"a": 1, "b": 3}) == 3
    assert len(target.asked) == 3


def test_a_first_call_that_is_under_way_is_neither_refreshed_nor_repeated(
    cache: Cache, target: Target, background: ThreadPoolExecutor
) -> None:
    first = background.submit(cache.call, "held", (), {})
    target.is_asked.wait(DEADLINE_S)
    second = background.submit(cache.call, "held", (), {})
    cache.refresh_all()
    cache.refresh_all()

    target.go.set()

    assert (first.result(DEADLINE_S), second.result(DEADLINE_S)) == (1, 1)
    assert len(target.asked) == 1


def test_a_blocked_call_makes_no_other_stale(
    cache: Cache, target: Target, clock: Clock, background: ThreadPoolExecutor
) -> None:
    cache.call("count", (), {})
    background.submit(cache.call, "held", (), {})
    target.is_asked.wait(DEADLINE_S)
    clock.now = STALE_S

    cache.refresh_all()
    until(lambda: cache.call("count", (), {}) > 1)
    clock.now = 2 * STALE_S

    assert cache.call("count", (), {}) > 1


def test_a_first_answer_that_took_long_is_given_only_to_those_who_waited(
    cache: Cache, target: Target, clock: Clock, background: ThreadPoolExecutor
) -> None:
    first = background.submit(cache.call, "held", (), {})
    target.is_asked.wait(DEADLINE_S)
    clock.now = 2 * STALE_S

    target.go.set()

    assert first.result(DEADLINE_S) == 1
    until(lambda: entry_of(cache, "held").answer is not None)
    with pytest.raises(lp.StaleError, match=r"2\.00 s old"):
        cache.call("held", (), {})


def test_answers_end_if_the_target_is_silent(cache: Cache, target: Target, clock: Clock) -> None:
    target.go.set()
    assert cache.call("held", (), {}) == 1
    target.go.clear()

    clock.now = STALE_S
    cache.refresh_all()

    assert cache.call("held", (), {}) == 1
    clock.now = STALE_S + 0.1
    with pytest.raises(lp.StaleError, match=r"1.10 s old.*has not come back"):
        cache.call("held", (), {})


def test_answers_end_if_the_target_fails(
    cache: Cache, clock: Clock, server: courier.Server
) -> None:
    cache.call("count", (), {})
    server.unbind("count")
    clock.now = 2 * STALE_S

    cache.refresh_all()

    until(lambda: entry_of(cache, "count").last_error is not None)
    with pytest.raises(lp.StaleError, match=r"failed: .*no method 'count'"):
        cache.call("count", (), {})


def test_a_first_call_that_fails_raises_and_is_not_refreshed(cache: Cache, target: Target) -> None:
    with pytest.raises(ValueError, match="not today"):
        cache.call("fail", (), {})
    until(lambda: entry_of(cache, "fail").pending is None)

    cache.refresh_all()
    cache.call("count", (), {})

    assert len(target.asked) == 2


def test_a_stream_is_refused_since_it_can_be_read_only_once(cache: Cache) -> None:
    for _ in range(2):
        with pytest.raises(
            TypeError, match=r"stream\(\) returns a stream, which a cacher cannot keep"
        ):
            cache.call("stream", (), {})
