"""Who forms which generation, sessions go in, events come out; and what one rank knows of it."""

from __future__ import annotations

import threading

import pytest

import launchpad as lp
from launchpad.collectives.generation import Generation
from launchpad.collectives.membership import (
    Broken,
    Changed,
    Finished,
    Formed,
    Lost,
    Member,
    Membership,
    RankReturned,
    Session,
)


def session(replica: int, attempt: int = 1) -> Session:
    return Session(replica, f"t-{replica}", attempt, "host")


def formed(membership: Membership, n: int) -> list[Session]:
    sessions = [session(replica) for replica in range(n)]
    for each in sessions:
        membership.join(each)
    return sessions


def test_a_generation_is_formed_when_all_have_come_in_the_order_of_replicas() -> None:
    membership, late = Membership(3), session(0)
    nothing = [membership.join(session(2)), membership.join(session(1))]

    events = membership.join(late)

    assert nothing == [[], []]
    assert membership.generation == 1
    assert [s.replica for s, _ in events] == [0, 1, 2]
    (event,) = {event for _, event in events}
    assert isinstance(event, Formed)
    assert [(m.rank, m.worker) for m in event.members] == [(0, "t-0"), (1, "t-1"), (2, "t-2")]


def test_one_that_dies_ends_the_generation_once_and_the_next_one_waits_for_all() -> None:
    membership = Membership(3)
    zero, one, two = formed(membership, 3)

    lost = membership.leave(one, "has died")
    later = [*membership.leave(two, "has left"), *membership.leave(one, "has died")]
    waiting = [*membership.join(session(0, 2)), *membership.join(session(1, 2))]
    again = membership.join(session(2, 2))

    assert [(s, e.why) for s, e in lost if isinstance(e, Lost)] == [
        (zero, "has died"),
        (two, "has died"),
    ]
    assert later == waiting == []
    assert [type(event) for _, event in again] == [Formed] * 3
    assert (membership.generation, membership.last_ended) == (2, 1)


def test_one_that_returns_ends_nothing_until_another_reports_that_it_is_missed() -> None:
    membership = Membership(2)
    zero, one = formed(membership, 2)

    returned = membership.leave(one, "has returned", has_returned=True)
    (_, event) = returned[0]
    assert isinstance(event, RankReturned)
    missed = Lost(1, event.member, "has returned", has_returned=True)

    assert membership.report(missed) == [(zero, missed)]
    assert membership.report(Broken(1, "later", is_late=True)) == []


def test_what_is_reported_of_an_earlier_generation_changes_nothing() -> None:
    membership = Membership(1)
    formed(membership, 1)
    membership.join(session(0, 2))

    assert membership.generation == 2
    assert membership.report(Broken(1, "different", is_late=False)) == []


def test_an_elastic_group_begins_with_all_goes_on_with_fewer_and_again_with_all() -> None:
    membership = Membership(4, min_replicas=2)
    at_first = [membership.join(session(replica)) for replica in (0, 2)]
    sessions = formed(membership, 4)

    membership.leave(sessions[1], "has died")
    early = [membership.join(session(replica)) for replica in (0, 2)]
    smaller = membership.join(session(3))
    back = membership.join(session(1, 2))
    for replica in (0, 2):
        membership.join(session(replica))
    larger = membership.join(session(3))

    assert at_first == early == [[], []]  # one that lives has still to come
    assert [len(e.members) for _, e in smaller if isinstance(e, Formed)] == [3, 3, 3]
    assert [type(event) for _, event in back] == [Changed] * 3
    assert [len(e.members) for _, e in larger if isinstance(e, Formed)] == [4] * 4
    assert membership.generation == 3


def test_an_elastic_group_does_not_go_on_with_fewer_than_it_may() -> None:
    membership = Membership(3, min_replicas=2)
    for each in formed(membership, 3)[1:]:
        membership.leave(each, "has died")

    assert membership.join(session(0)) == []


def test_one_that_comes_back_when_the_others_are_done_is_done_too() -> None:
    membership = Membership(3, min_replicas=2)
    _, one, _ = formed(membership, 3)
    membership.leave(one, "has died")
    survivors = session(0), session(2)
    for each in survivors:
        membership.join(each)
    for each in survivors:
        membership.leave(each, "has returned", has_returned=True)

    events = membership.join(session(1, 2))

    assert [type(event) for _, event in events] == [Finished]


def new() -> Generation:
    members = tuple(Member(rank, rank, f"rank-{rank}", 1, "here") for rank in range(2))
    return Generation(1, members, 0, "rank", lambda event: None)


def test_a_callback_that_raises_prevents_no_other(capfd: pytest.CaptureFixture[str]) -> None:
    generation, called = new(), threading.Event()
    generation.on_end(lambda error: 1 / 0)
    generation.on_end(lambda error: called.set())

    generation.end(lp.PeerFailed("rank-1 has died"))
    late: list[Exception] = []
    generation.on_end(late.append)

    assert called.is_set()
    assert [str(error) for error in late] == ["rank-1 has died"]
    assert generation.wait_end(0)
    assert "ZeroDivisionError" in capfd.readouterr().err


def test_what_is_to_be_called_at_a_stop_is_called_at_once_if_that_was_before() -> None:
    generation, called = new(), threading.Event()

    generation.note_stop()
    generation.on_stop(called.set)

    assert called.is_set()
