"""A queue as its producers and consumers have it."""

from __future__ import annotations

import contextlib
import multiprocessing
import pickle
import queue as stdlib
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import numpy as np
import pytest

import launchpad as lp
from launchpad import courier
from launchpad.queues.client import Queue
from launchpad.queues.contents import QueueContents
from launchpad.queues.node import METHODS
from launchpad.queues.packing import pack
from launchpad.queues.server import QueueServer
from tests.waiting import until

MAXSIZE = 5


class Served:
    """A queue served as its node does, whose clients may be different workers."""

    def __init__(self, address: str) -> None:
        self.address = address
        self.contents = QueueContents(MAXSIZE, producers=1, redeliver=True)
        self.open()

    def open(self, queue_id: str = "") -> None:
        self.queue = QueueServer("rows-0", self.contents, queue_id)
        self.server = courier.Server("rows-0", address=self.address)
        for method in METHODS:
            self.server.bind(method, getattr(self.queue, method))
        self.server.start()

    def close(self) -> None:
        self.queue.close()
        self.server.stop()

    def client(self) -> Queue[Any]:
        return Queue(courier.Client(self.address))


@pytest.fixture
def served(tmp_path: Any) -> Iterator[Served]:
    made = Served(f"unix:{tmp_path}/s")
    yield made
    made.close()
    vars(made).clear()  # pytest keeps it, and it the arrays that are in hand


@pytest.fixture
def rows(served: Served) -> Iterator[Queue[Any]]:
    client = served.client()
    yield client
    courier.close(client._client)


@contextlib.contextmanager
def answer_is_missed(queue: Queue[Any], monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The answer to what the block asks for is interrupted."""
    get = queue._calls.get

    def interrupted(*args: Any) -> Any:
        get(*args)
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setitem(vars(queue._calls), "get", interrupted)
        with pytest.raises(KeyboardInterrupt):
            yield


def test_items_come_out_in_the_order_in_which_they_went_in(rows: Queue[Any]) -> None:
    rows.put("a")
    rows.put_many(["b", "c"])
    rows.put_from(iter("de"))
    rows.close()

    assert rows.get() == "a"
    assert list(rows) == ["b", "c", "d", "e"]
    assert rows.stats().handled == 5


def test_a_full_and_an_empty_queue_raise_errors_of_the_standard_library(rows: Queue[Any]) -> None:
    with pytest.raises(lp.QueueFull, match=r"no room within 0\.05 s") as full:
        rows.put_many(range(MAXSIZE + 2), timeout_s=0.05)
    assert full.value.accepted == MAXSIZE
    assert isinstance(full.value, stdlib.Full)
    assert isinstance(full.value, TimeoutError)

    assert rows.get_many(10, timeout_s=0) == [0, 1, 2, 3, 4]
    with pytest.raises(lp.QueueEmpty, match="no item within 0 s") as empty:
        rows.get(timeout_s=0)
    assert isinstance(empty.value, stdlib.Empty)
    assert isinstance(empty.value, TimeoutError)


def test_a_whole_batch_is_waited_for_and_kept_until_the_next(
    rows: Queue[Any], served: Served
) -> None:
    with ThreadPoolExecutor(1) as pool:  # one thread is one consumer
        batch = pool.submit(rows.get_many, MAXSIZE + 3, 60, at_least=MAXSIZE + 3)
        for number in range(MAXSIZE + 4):
            rows.put(number)
        assert batch.result(60) == list(range(MAXSIZE + 3))
        assert rows.stats().in_hand == MAXSIZE + 3

        last = pool.submit(rows.get_many, 2, 60, at_least=2)
        until(lambda: served.queue._getters)
        assert rows.stats().in_hand == 1
        rows.close()
        assert last.result(60) == [MAXSIZE + 3]


def test_what_came_of_a_batch_in_time_or_unnoticed_is_in_the_next(
    rows: Queue[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    rows.put_many([1, 2])
    with pytest.raises(lp.QueueEmpty, match=r"had 2 items within 0 s, not 4"):
        rows.get_many(4, timeout_s=0, at_least=4)
    rows.put(3)
    with answer_is_missed(rows, monkeypatch):
        rows.get_many(4, at_least=4)
    rows.put(4)

    assert rows.get_many(4, at_least=4) == [1, 2, 3, 4]
    rows.acknowledge()
    assert rows.stats().handled == 4


def test_those_that_wait_get_what_comes(rows: Queue[Any], threads: ThreadPoolExecutor) -> None:
    getting = [threads.submit(rows.get) for _ in range(20)]

    rows.put_many(range(20))

    assert sorted(each.result(60) for each in getting) == list(range(20))


def test_producers_wait_in_their_turn(
    rows: Queue[Any], served: Served, threads: ThreadPoolExecutor
) -> None:
    putting = threads.submit(rows.put_many, range(50))
    until(lambda: served.queue._putters)
    taken = [rows.get() for _ in range(50)]

    assert putting.result(60) is True
    assert taken == list(range(50))
    assert rows.stats().most_waiting == MAXSIZE


def test_arrays_come_out_equal_and_may_be_written_to(rows: Queue[Any]) -> None:
    small, large = np.arange(10.0), np.arange(1_000_000.0)
    frame = large.copy()

    def steps() -> Iterator[dict[str, Any]]:
        for number in range(3):
            frame[0] = number  # the same memory each time
            yield {"small": small, "large": frame}

    rows.put_from(steps())

    for number in range(3):
        item = rows.get()
        item["large"][1:2] += 0
        assert item["large"][0] == number
        assert np.array_equal(item["large"][1:], large[1:])
        assert np.array_equal(item["small"], small)


@pytest.mark.parametrize("put", ["put_many", "put_from"])
@pytest.mark.parametrize("length", [100, 2048, 2049, 30_000])
def test_a_generator_may_fill_its_array_again(rows: Queue[Any], put: str, length: int) -> None:
    frame = np.zeros(length)

    def frames() -> Iterator[Any]:
        for number in range(MAXSIZE):
            frame[:] = number
            yield frame

    getattr(rows, put)(frames())

    assert [set(item) for item in rows.get_many(MAXSIZE)] == [{n} for n in range(MAXSIZE)]


def test_an_item_that_cannot_be_sent_fails_where_it_is_put(rows: Queue[Any]) -> None:
    with pytest.raises(TypeError, match=r"use put_from\(\) or put_many\(\)"):
        rows.put(iter([1]))
    with pytest.raises(TypeError):
        rows.put(threading.Lock())
    with pytest.raises(ValueError, match="at least one"):
        rows.get_many(0)
    assert rows.size() == 0


def test_cancel_ends_waits_and_drops_items(rows: Queue[Any], threads: ThreadPoolExecutor) -> None:
    rows.put_many(range(MAXSIZE))
    putting = threads.submit(rows.put, 5)
    from_iterator = threads.submit(rows.put_from, iter(int, 1))  # without end
    assert next(iter(rows)) == 0

    rows.cancel()

    assert putting.result(60) in (True, False)  # it may have got the first one's place
    assert from_iterator.result(60) < 10
    assert rows.put(6) is False
    assert list(rows) == []
    with pytest.raises(lp.QueueClosed, match="was cancelled"):
        rows.get()
    assert rows.stats().is_cancelled


@pytest.mark.parametrize("how", ["break", "error", "interrupted acknowledgement"])
def test_what_was_not_begun_when_a_loop_is_left_goes_back(
    how: str,
    rows: Queue[Any],
    served: Served,
    threads: ThreadPoolExecutor,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    rows.put_many(range(5))
    rows.close()

    def handle() -> None:
        for number in rows:
            if number == 2 and how == "error":
                raise KeyError(number)
            if number == 2 and how == "interrupted acknowledgement":
                with answer_is_missed(rows, monkeypatch):
                    rows.acknowledge()
            if number == 2:
                break

    error = None
    try:
        handle()
    except KeyError as raised:
        error = raised  # which keeps the frame of the loop

    assert threads.submit(lambda: list(served.client())).result(60) == [3, 4]
    assert rows.stats().in_hand == (how != "interrupted acknowledgement")
    assert (error is None) == (how != "error")
    rows.acknowledge()
    assert rows.stats().handled == 5


def test_what_is_in_work_stays_in_hand_if_the_answer_to_its_acknowledgement_is_missed(
    rows: Queue[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    rows.put_many(range(3))
    assert rows.get() == 0

    with answer_is_missed(rows, monkeypatch):
        rows.acknowledge()

    assert rows.get_many(3) == [1, 2]
    assert rows.stats().handled == 1


def test_what_came_before_an_unreadable_item_is_given(rows: Queue[Any], served: Served) -> None:
    rows.put(1)
    rows._put([b"no pickle"], None, None)
    rows.put(3)

    assert rows.get_many(3) == [1]
    with pytest.raises(pickle.UnpicklingError):
        rows.get_many(3)
    assert rows.get_many(3) == [3]


def test_an_interrupt_ends_putting_from_an_iterator_into_a_full_queue(rows: Queue[Any]) -> None:
    def steps() -> Iterator[int]:
        yield from range(MAXSIZE + 1)
        until(lambda: rows.size() == MAXSIZE)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        rows.put_from(steps())

    assert rows.size() == MAXSIZE
    rows.cancel()
    until(lambda: all(each.name != "launchpad-put" for each in threading.enumerate()))


def test_an_error_of_an_iterator_comes_out_after_what_it_gave_is_put(rows: Queue[Any]) -> None:
    def steps() -> Iterator[int]:
        yield 1
        raise KeyError("no more")

    with pytest.raises(KeyError, match="no more"):
        rows.put_from(steps())

    assert rows.get() == 1


def test_a_producer_that_has_closed_puts_no_more_and_blocks_close_once(rows: Queue[Any]) -> None:
    with pytest.raises(KeyError), rows.producer():
        raise KeyError
    assert rows.stats().closed == ()  # as the block was left by an error

    with rows.producer():
        with rows.producer():
            rows.put(1)
        rows.put(2)
    with pytest.raises(lp.QueueClosed, match="has closed"):
        rows.put(3)
    with pytest.raises(lp.QueueClosed, match="has closed"), rows.producer():
        pass

    assert list(rows) == [1, 2]


def test_a_put_without_answer_counts_once(rows: Queue[Any], threads: ThreadPoolExecutor) -> None:
    rows.size()
    with lp.testing.Faults(seed=3, drop_response=0.3, drop_request=0.2) as faults:
        putting = threads.submit(lambda: [rows.put(number) for number in range(100)])
        taken = [rows.get() for _ in range(100)]
        assert putting.result(60) == [True] * 100

    assert taken == list(range(100))
    assert rows.stats().put == 100
    assert sum(faults.counts.values()) > 10


def test_a_lost_queue_is_noticed_once_by_each_user(rows: Queue[Any], served: Served) -> None:
    rows.put(1)
    assert rows.get() == 1
    rows.put(2)
    served.close()
    served.contents = QueueContents(MAXSIZE, None, True)
    served.open()

    with pytest.raises(lp.QueueLost, match="what waited in it"):
        rows.get()
    rows.put(3)
    assert rows.get() == 3


def test_a_restored_queue_goes_on(
    rows: Queue[Any], served: Served, threads: ThreadPoolExecutor
) -> None:
    rows.put_many([1, 2, 3])
    assert rows.get() == 1
    putting = threads.submit(rows.put_many, [4, 5, 6, 7])  # there is room for three
    until(lambda: served.queue._putters)

    served.close()
    saved = pickle.dumps((served.contents, served.queue.queue_id))
    served.contents, queue_id = pickle.loads(saved)
    served.open(queue_id)

    assert [rows.get() for _ in range(6)] == [2, 3, 4, 5, 6, 7]
    assert putting.result(60) is True


def test_it_can_be_pickled_and_names_its_worker(rows: Queue[Any]) -> None:
    rows.put(1)

    again = pickle.loads(pickle.dumps(rows))

    assert again.get() == 1
    assert "s>" in repr(rows)
    courier.close(again._client)


@pytest.mark.parametrize("ends", ["worker", "attempt"])
@pytest.mark.parametrize("wait", [Queue.get, partial(Queue.put, item=1)])
def test_a_wait_ends_with_its_worker_or_attempt(served: Served, wait: Any, ends: str) -> None:
    served.contents.maxsize = 0  # nothing can be put
    with lp.testing.worker() as me, ThreadPoolExecutor(1) as pool:
        client = served.client()
        waiting = pool.submit(wait, client)
        until(lambda: served.queue._getters or served.queue._putters)
        if ends == "worker":
            me.stop.request()
        else:
            served.contents.maxsize = MAXSIZE
            served.queue.worker_ended(me.name, me.attempt, is_well=False, is_over=False)

        with pytest.raises(lp.Stopped):
            waiting.result(60)
        assert served.queue.size() == 0
        courier.close(client._client)


def test_an_iteration_ends_between_two_chunks_when_the_worker_stops(rows: Queue[Any]) -> None:
    rows.put_many(range(5))

    def handle() -> None:
        for _ in rows:
            lp.current().stop.request()

    with lp.testing.worker(), pytest.raises(lp.Stopped):
        handle()

    assert rows.stats().handled == 1  # what was given is, and no other was taken
    assert rows.size() == 4


def test_a_forked_child_takes_for_itself(rows: Queue[Any]) -> None:
    rows.put_many(range(3))
    assert rows.get() == 0
    fork = multiprocessing.get_context("fork")
    receives, sends = fork.Pipe(duplex=False)

    child = fork.Process(target=lambda: sends.send(rows.get()))
    child.start()
    assert receives.poll(60)
    taken = receives.recv()
    child.join(60)

    assert [taken, rows.get()] == [1, 2]
    assert rows.stats().handled == 1  # the child is no worker that was announced


def test_a_late_duplicate_of_an_earlier_request_changes_nothing(served: Served) -> None:
    put = partial(served.queue.put, queue_id=served.queue.queue_id, wait_s=0)

    for number, item in ((1, "a"), (2, "b"), (1, "a")):
        put("session", number, items=[pack(item)])

    assert served.queue.size() == 2


def test_callers_that_have_asked_for_nothing_for_longest_are_forgotten_but_not_what_they_have_in_hand(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("launchpad.queues.contents._MOST_SESSIONS", 100)
    served.close()
    served.contents = QueueContents(MAXSIZE, None, True)
    served.open()
    put = partial(served.queue.put, queue_id=served.queue.queue_id, wait_s=0)
    get = partial(served.queue.get, queue_id=served.queue.queue_id, n=1, handled=0, kept=0)

    put("puts", 1, items=[pack("a")])
    get("has one", 1, wait_s=0)
    waits: Any = get("waits", 1, wait_s=60)
    callers = [f"caller {number}" for number in range(1000)]
    for caller in callers:
        get(caller, 1, wait_s=0)

    assert len(served.contents.sessions) <= 100
    assert served.contents.sessions.keys() >= {"has one", "waits", *callers[-40:]}
    put("puts", 2, items=[pack("b")])
    assert waits.result() == ("ok", [pack("b")])
    assert served.queue.queue_stats().in_hand == 2


def test_a_failed_producer_has_closed(
    rows: Queue[Any], served: Served, caplog: pytest.LogCaptureFixture
) -> None:
    rows.put(1)
    (producer,) = served.contents._open
    served.queue.worker_ended(producer, 1, is_well=False, is_over=True)

    assert list(rows) == [1]
    assert "has failed, and is not started again" in caplog.text


def test_those_that_wait_at_a_queue_without_an_end_are_given_a_hint_once(
    rows: Queue[Any], served: Served, caplog: pytest.LogCaptureFixture
) -> None:
    served.contents.producers = None
    rows.put(1)
    rows.close()

    assert rows.get() == 1
    wait_in_vain(rows, times=2)

    (hint,) = caplog.messages
    assert "lp.QueueNode(producers=…)" in hint


def test_those_that_wait_for_producers_that_never_come_are_told_once_how_many_have(
    rows: Queue[Any],
    served: Served,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    served.contents.producers = 4
    for number in range(3):
        served.contents.register(f"producer-{number}", 1)
    wait_in_vain(rows)
    assert not caplog.messages  # not yet

    monkeypatch.setattr("launchpad.queues.server._ABSENT_AFTER_S", 0.0)
    wait_in_vain(rows, times=2)

    (warning,) = caplog.messages
    assert "3 of 4 producers have come (producer-0, producer-1, producer-2)" in warning


def wait_in_vain(rows: Queue[Any], times: int = 1) -> None:
    for _ in range(times):
        with pytest.raises(lp.QueueEmpty):
            rows.get(timeout_s=0.01)


@pytest.mark.parametrize(("takes_s", "redeliver"), [(0.03, True), (0.0, False)])
def test_a_consumer_takes_what_it_handles_soon_or_one_that_may_be_lost(
    rows: Queue[Any], served: Served, takes_s: float, redeliver: bool
) -> None:
    served.contents.redeliver = redeliver
    rows.put_many(range(5))
    rows.close()

    in_hand = []
    for _ in rows:
        time.sleep(takes_s)
        in_hand.append(served.contents.stats().in_hand)

    assert in_hand == [1] * 5


@pytest.mark.parametrize("wrong", [{"maxsize": 0}, {"producers": 0}, {"redeliver": 1}])
def test_wrong_arguments_fail_where_they_are_given(wrong: Any) -> None:
    ((name, value),) = wrong.items()

    with pytest.raises(lp.DefinitionError, match=f"{name}={value}"):
        lp.QueueNode(**wrong)
