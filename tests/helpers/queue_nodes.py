"""Nodes that put into queues and take from them."""

from __future__ import annotations

import threading

import launchpad as lp
from tests.waiting import until

Pair = tuple[int, int]


def produce(queue: lp.Queue[Pair], n: int) -> str:
    """The first attempt of the first one fails after half of them; its next goes on there."""
    me = lp.current()
    begin = n // 2 if me.replica_index == 0 and me.attempt == 2 else 0
    with queue.producer():
        for number in range(begin, n):
            if me.replica_index == 0 and me.attempt == 1 and number == n // 2:
                raise ValueError("told to die")
            queue.put((me.replica_index, number))
    return me.name


def produce_without_closing(queue: lp.Queue[Pair], n: int) -> None:
    queue.put_from((lp.current().replica_index + 10, number) for number in range(n))


def consume(queue: lp.Queue[Pair]) -> list[Pair]:
    return list(queue)


def die_with_two_in_hand(queue: lp.Queue[str]) -> list[str]:
    """The second attempt is given what two threads of the first one had, and keeps it by succeeding."""
    if lp.current().attempt == 1:
        thread = threading.Thread(target=queue.get)
        thread.start()
        thread.join()
        queue.get()
        raise ValueError("told to die")
    return [queue.get(), queue.get()]


def put_and_stop(queue: lp.Queue[int], n: int) -> None:
    """Takes one of them, and stops the program with it in hand."""
    queue.put_many(range(n))
    queue.get()
    lp.stop()
    lp.wait_for_stop()


def fail_when_all_have_closed(queue: lp.Queue[int]) -> None:
    if lp.current().attempt == 1:
        until(lambda: queue.stats().closed)
        raise ValueError("told to die")


def go_on_when_one_is_handled(queue: lp.Queue[int]) -> None:
    attempt = lp.current().attempt
    if attempt == 2:
        until(lambda: queue.stats().handled)
    with queue.producer():
        queue.put(attempt)


def consume_in_the_second_attempt(queue: lp.Queue[int]) -> list[int]:
    if lp.current().attempt == 1:
        lp.wait_for_stop()
    return list(queue)


def notice_a_lost_queue(queue: lp.Queue[str]) -> list[str]:
    """Put two items, notice that the queue's worker is killed, and go on with the new queue."""
    queue.put_many(["first", "second"])
    items = [queue.get()]
    print("has one", flush=True)
    try:
        while True:
            queue.get(timeout_s=60)
    except lp.QueueLost as error:
        items.append(type(error).__name__)
    queue.put("third")
    return [*items, queue.get()]
