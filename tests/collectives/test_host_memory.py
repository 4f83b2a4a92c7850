"""Memory and pipes that ranks of one host share, step by step: both ranks are in this process."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from launchpad.collectives import host_memory
from launchpad.collectives.host_memory import HostMemory, open_together
from launchpad.collectives.mailbox import Different, Gone, Mailbox

SIZE = 4096


def opened(mailboxes: list[Mailbox]) -> list[HostMemory | None]:
    """What two ranks have in common: rank 3 and rank 5 of a generation."""
    given: list[Any] = [None, None]
    all_are_here = threading.Barrier(2, timeout=60)

    def open_in(own: int) -> HostMemory | None:
        def meet(data: Any, answer: Callable[[list[Any]], Any]) -> Any:
            given[own] = data
            all_are_here.wait()
            answered = answer(given)
            all_are_here.wait()
            return answered

        return open_together(mailboxes[own], (3, 5), own, SIZE, meet)

    with ThreadPoolExecutor(2) as pool:
        return list(pool.map(open_in, range(2)))


@pytest.fixture
def mailboxes() -> list[Mailbox]:
    return [Mailbox(), Mailbox()]


@pytest.fixture
def both(mailboxes: list[Mailbox]) -> Iterator[list[HostMemory]]:
    memories = [memory for memory in opened(mailboxes) if memory is not None]
    assert len(memories) == 2
    yield memories
    memories.clear()


def test_rows_of_two_uses_stay_while_the_other_rank_is_one_ahead(both: list[HostMemory]) -> None:
    slow, fast = both
    of_slow = []
    for use in (1, 2):
        of_slow.append(slow.rows("u1", 3))
        of_slow[-1][0][...], fast.rows("u1", 3)[1][...] = use, 10 * use
        slow.announce(7, "sum")
        fast.announce(7, "sum")
        assert fast.wait(7, "sum", 60) == []

    fast.rows("u1", 3)[1][...] = 90
    fast.announce(8, "max")

    assert slow.wait(7, "sum", 60) == []
    values = [[row.tolist() for row in rows] for rows in of_slow]
    assert values == [[[1] * 3, [10] * 3], [[2] * 3, [20] * 3]]
    assert slow.rows("u1", 3)[1].tolist() == [90] * 3
    slow.announce(8, "max")
    assert slow.wait(8, "max", 60) == []


def test_a_wait_says_which_ranks_have_not_come(both: list[HostMemory]) -> None:
    for memory in both:
        memory.announce(1, "sum")

    assert both[0].wait(1, "sum", 60) == []
    both[0].announce(1, "sum")
    assert both[0].wait(1, "sum", 0) == [5]


@pytest.mark.parametrize("theirs", [(1, "max of 3 × float32"), (2, "sum of 3 × float32")])
def test_one_in_another_operation_is_named(both: list[HostMemory], theirs: tuple[int, str]) -> None:
    both[0].announce(1, "sum of 3 × float32")
    both[1].announce(*theirs)

    with pytest.raises(Different) as caught:
        both[0].wait(1, "sum of 3 × float32", 60)

    assert caught.value.args == ("sum of 3 × float32", 5, theirs[1])


@pytest.mark.parametrize(
    ("ends", "error"),
    [
        (lambda mailbox: mailbox.end(ValueError("it is over")), ValueError),
        (lambda mailbox: mailbox.note_returned(5), Gone),
    ],
)
@pytest.mark.parametrize("is_before", [True, False])
def test_a_wait_ends_with_the_generation_or_when_the_other_rank_returns(
    both: list[HostMemory],
    mailboxes: list[Mailbox],
    ends: Callable[[Mailbox], None],
    error: type[Exception],
    is_before: bool,
) -> None:
    both[0].announce(1, "sum")
    with ThreadPoolExecutor(1) as pool:
        if is_before:
            ends(mailboxes[0])
        waiting = pool.submit(both[0].wait, 1, "sum", 60)
        ends(mailboxes[0])

        with pytest.raises(error):
            waiting.result(30)


def test_what_came_before_a_return_counts(both: list[HostMemory], mailboxes: list[Mailbox]) -> None:
    both[0].announce(1, "sum")
    both[1].announce(1, "sum")
    mailboxes[0].note_returned(5)

    assert both[0].wait(1, "sum", 60) == []


def test_nothing_stays_open(mailboxes: list[Mailbox], monkeypatch: pytest.MonkeyPatch) -> None:
    before = sorted(os.listdir("/proc/self/fd"))

    shared = opened(mailboxes)
    is_shared = None not in shared
    del shared
    monkeypatch.setattr(host_memory, "boot_id", lambda: os.urandom(16))  # each on another host
    refused = opened(mailboxes)

    assert is_shared
    assert refused == [None, None]
    assert sorted(os.listdir("/proc/self/fd")) == before


def test_all_that_have_come_by_messages_raise_what_the_answer_to_them_raises() -> None:
    def refuse(parts: list[Any]) -> Any:
        raise ValueError(f"cannot reduce {parts}")

    mailbox = Mailbox()
    mailbox.begin("", 1, "reduce")

    with ThreadPoolExecutor(2) as pool:
        both = [
            pool.submit(mailbox.meet, ("", 1, 0, rank), "reduce", rank, 60, (0, 1), refuse)
            for rank in range(2)
        ]

    for future in both:
        with pytest.raises(ValueError, match=r"cannot reduce \[0, 1\]"):
            future.result()
