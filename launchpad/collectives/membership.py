"""Membership: the decision which workers form each generation of a collective. Pure: joins in, events out.

A session is one attempt of one replica to take part. It begins when the replica joins, and ends when the
replica leaves or its connection ends. Sessions without a generation wait for the next one. The next
generation is formed

    of all replicas   as soon as every replica of the group waits
    of fewer          in elastic groups only: as soon as every replica that is left waits, if these are at
                      least `min_replicas`, and if every absent replica was there before and was lost. So at
                      the start of the program, a group waits for all of its replicas.

A generation ends for its members when one of them is lost (`Lost`), and when ranks do different things or
don't come in time (`Broken`). The generation of an elastic group also ends when a missing replica has come
back (`Changed`). Members that go on join again. If a member leaves because its function has returned, the
generation does not end (`RankReturned`). Only a rank that waits for this member fails, and reports it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Member:
    """A rank of a generation, with its worker and host."""

    rank: int
    replica: int
    worker: str
    attempt: int
    host: str


@dataclass(frozen=True)
class Formed:
    """A generation has begun. `members` are in the order of ranks."""

    generation: int
    members: tuple[Member, ...]


@dataclass(frozen=True)
class Lost:
    """The generation is over, because this member has died, or has returned while others waited for it."""

    generation: int
    member: Member
    why: str
    has_returned: bool = False


@dataclass(frozen=True)
class RankReturned:
    """The function of this member has returned. It takes part in no further operation."""

    generation: int
    member: Member


@dataclass(frozen=True)
class Changed:
    """The generation is over, because this worker has come. It takes part in the next generation."""

    generation: int
    worker: str


@dataclass(frozen=True)
class Broken:
    """The generation is over, because its ranks did different things, or some did not come in time."""

    generation: int
    text: str
    is_late: bool


@dataclass(frozen=True)
class Finished:
    """There will be no further generation: all absent replicas have returned, and too few are left."""

    generation: int


Event = Finished | Formed | Lost | RankReturned | Changed | Broken


@dataclass(eq=False)
class Session:
    """An attempt of a replica to take part. `member` is its part in the current generation, or None."""

    replica: int
    worker: str
    attempt: int
    host: str
    member: Member | None = None


class Membership:
    """The sessions of one group.

    Args:
        size: The number of replicas in the group.
        min_replicas: The smallest number of replicas that may go on. With None, only all of them together
            may.
    """

    def __init__(self, size: int, min_replicas: int | None = None) -> None:
        self._size = size
        self.min_replicas = min_replicas
        self._sessions: list[Session] = []
        self._lost: set[int] = set()
        self._done: set[int] = set()
        self._is_over = True
        self.generation = 0

    def join(self, newcomer: Session) -> list[tuple[Session, Event]]:
        """Add a session. It replaces an earlier one of the same replica.

        If both sessions are of the same attempt, the replica goes on to the next generation. Otherwise the
        earlier attempt has died.
        """
        events: list[tuple[Session, Event]] = []
        for earlier in [s for s in self._sessions if s.replica == newcomer.replica]:
            self._sessions.remove(earlier)
            if earlier.member is not None:
                events += self._end(Lost(self.generation, earlier.member, "was started again"))
        self._sessions.append(newcomer)
        self._lost.discard(newcomer.replica)
        self._done.discard(newcomer.replica)
        if self.min_replicas is not None:
            events += self._end(Changed(self.generation, newcomer.worker))
        return [*events, *self._form()]

    def leave(
        self, session: Session, why: str, *, has_returned: bool = False
    ) -> list[tuple[Session, Event]]:
        """End a session. A second call does nothing."""
        if session not in self._sessions:
            return []
        self._sessions.remove(session)
        self._lost.add(session.replica)
        if has_returned:
            self._done.add(session.replica)
        events: list[tuple[Session, Event]] = []
        member = session.member
        if member is not None:
            if has_returned:
                events = [(s, RankReturned(self.generation, member)) for s in self._members()]
            else:
                events = self._end(Lost(self.generation, member, why))
        return [*events, *self._form()]

    def report(self, event: Lost | Broken) -> list[tuple[Session, Event]]:
        """End the generation, because a member reports that it cannot go on."""
        return self._end(event) if event.generation == self.generation else []

    @property
    def last_ended(self) -> int:
        """The number of the last generation that is over."""
        return self.generation - (not self._is_over)

    def absent(self) -> list[int]:
        """Return the replicas that are not waiting for the next generation."""
        return sorted(set(range(self._size)) - {s.replica for s in self._waiting()})

    def _members(self) -> list[Session]:
        return [session for session in self._sessions if session.member is not None]

    def _waiting(self) -> list[Session]:
        return [session for session in self._sessions if session.member is None]

    def _end(self, event: Event) -> list[tuple[Session, Event]]:
        """End the generation, and return the event for all members.

        Only the first reason for a generation's end counts.
        """
        if self._is_over:
            return []
        self._is_over = True
        return [(session, event) for session in self._members()]

    def _form(self) -> list[tuple[Session, Event]]:
        waiting = self._waiting()
        if not waiting or self._members():
            return []
        lost = self._lost if self.min_replicas is not None else ()
        if len(waiting) + len(lost) < self._size:
            return []
        if len(waiting) < (self.min_replicas or self._size):
            is_vain = self._done.issuperset(self.absent())
            return [(session, Finished(self.generation)) for session in waiting if is_vain]
        self.generation += 1
        self._is_over = False
        waiting.sort(key=lambda session: session.replica)
        for rank, session in enumerate(waiting):
            session.member = Member(
                rank, session.replica, session.worker, session.attempt, session.host
            )
        event = Formed(self.generation, members_of(waiting))
        return [(session, event) for session in waiting]


def members_of(sessions: Sequence[Session]) -> tuple[Member, ...]:
    """Return the members of these sessions, by rank."""
    return tuple(session.member for session in sessions if session.member is not None)
