"""One generation of a collective, as one of its ranks knows it: its members, and whether it goes on."""

from __future__ import annotations

import time
import traceback
from collections.abc import Callable

from launchpad.collectives.membership import Broken, Event, Lost, Member
from launchpad.courier import fork, interruptions
from launchpad.courier.interruptions import Lock
from launchpad.errors import CollectiveMismatch, MembersChanged, NotRunningError, PeerFailed
from launchpad.runtime import context

_LOOK_S = 0.1

STOP_S = 2.0
"""A member that was asked to stop: so long until this one is, too, or it counts as lost."""

NOTICE_S = STOP_S + 1.0
"""How much later than a failed call its cause may be known."""


class Generation:
    """Its members, and the error that has ended it. Safe from any thread.

    Args:
        number: Which one; 1 is the first.
        members: By rank.
        rank: Which of them this is.
        label: The group, for texts.
        report: Sends what this rank has found to the rendezvous.
    """

    def __init__(
        self,
        number: int,
        members: tuple[Member, ...],
        rank: int,
        label: str,
        report: Callable[[Event], None],
    ) -> None:
        self.number, self.members, self.rank, self.label = number, members, rank, label
        self._report = report
        self._error: Exception | None = None
        self._has_ended = interruptions.Event()
        self._lock = Lock()
        self._callbacks: list[Callable[[Exception], object]] = []
        self.returned: set[int] = set()
        self._on_return: list[Callable[[int], None]] = []
        self._on_stop: list[Callable[[], object]] = []
        self._is_stopping = False
        fork.drop_in_child(self)

    def drop_inherited(self) -> None:
        """For a forked child: its parent is the rank, and hears nothing of the child."""
        self._lock = Lock()
        self._callbacks.clear()
        self._on_return.clear()
        self._on_stop.clear()
        self._report = lambda event: None
        self._error = NotRunningError(
            f"{self.name_of(self.rank)} takes part in {self.label!r}, and {fork.describe_child()}, which that"
            " is: a forked child is no rank. Call collective operations in the worker itself."
        )
        self._has_ended = interruptions.Event()
        self._has_ended.set()

    @property
    def error(self) -> Exception | None:
        """What has ended it, a new object each time; None while it goes on."""
        error = self._error
        return None if error is None else type(error)(*error.args)

    def check(self) -> None:
        """Raises what has ended it."""
        if self._error is not None:
            raise type(self._error)(*self._error.args)

    def end(self, error: Exception) -> None:
        """Ends it, in this rank; the second time changes nothing."""
        with self._lock:
            if self._error is not None:
                return
            self._error = error
            callbacks, self._callbacks = self._callbacks, []
        try:
            for callback in callbacks:
                try:
                    callback(error)
                except Exception:  # the others free what waits, too
                    traceback.print_exc()
        finally:
            self._has_ended.set()

    def wait_end(self, timeout_s: float) -> bool:
        """Waits until it ends, so long at most, or until this worker is asked to stop; whether it has."""
        deadline = time.monotonic() + timeout_s
        while not self._has_ended.wait(_LOOK_S):
            if time.monotonic() > deadline or context.is_stopping():
                return False
        return True

    def on_end(self, callback: Callable[[Exception], object]) -> None:
        """Calls back once with the error, in a thread of the library; at once if it has ended already."""
        with self._lock:
            if self._error is None:
                self._callbacks.append(callback)
                return
        callback(self._error)

    def on_stop(self, callback: Callable[[], object]) -> None:
        """Calls back when a member has left, and this worker is asked to stop as well; at once if so."""
        with self._lock:
            self._on_stop.append(callback)
            is_stopping = self._is_stopping
        if is_stopping:
            callback()

    def note_stop(self) -> None:
        """A member has left since the program stops, or the group is started again: none waits for it."""
        with self._lock:
            self._is_stopping = True
            callbacks = tuple(self._on_stop)
        for callback in callbacks:
            callback()

    def on_return(self, callback: Callable[[int], None]) -> None:
        """Calls back with each rank whose function returns."""
        self._on_return.append(callback)
        for rank in tuple(self.returned):
            callback(rank)

    def note_returned(self, rank: int) -> None:
        """The function of this rank has returned."""
        self.returned.add(rank)
        for callback in tuple(self._on_return):
            callback(rank)

    def missed(self, rank: int, while_in: str) -> Exception:
        """The error of waiting for a rank that has returned; the others are told as well."""
        member = self.members[rank]
        self._report(Lost(self.number, member, f"has returned, {while_in}", has_returned=True))
        self.wait_end(NOTICE_S)
        return self.error or self.lost(member, "has returned", has_returned=True)

    def failed_call(self, rank: int, cause: Exception) -> Exception:
        """The error for a call of this rank that has failed: what the rendezvous says, if it does."""
        self.wait_end(NOTICE_S)
        return self.error or self.lost(self.members[rank], f"does not answer: {cause}")

    def mismatch(self, ours: str, rank: int, theirs: str) -> Exception:
        """The error of ranks that do different things; ends it, and the others are told as well."""
        text = (
            f"{self.name_of(self.rank)} is in {ours}, while {self.name_of(rank)} is in {theirs}: all ranks"
            " have to make the same calls in the same order, with values of the same structure, types and"
            " shapes"
        )
        return self._broken(CollectiveMismatch(text), is_late=False)

    def late(self, text: str) -> Exception:
        """The error of ranks that did not come in time; ends it, and the others are told as well."""
        return self._broken(TimeoutError(text), is_late=True)

    def name_of(self, rank: int) -> str:
        """`trainer-2 (rank 2)`."""
        return f"{self.members[rank].worker} (rank {rank})"

    def _broken(self, error: Exception, *, is_late: bool) -> Exception:
        # The report comes first: a thread that `end` wakes leaves with this error, and the others would be
        # told that a rank has failed before they are told why.
        self._report(Broken(self.number, str(error), is_late))
        self.end(error)
        return self.error or error

    def lost(self, member: Member, why: str, *, has_returned: bool = False) -> PeerFailed:
        """The error about a member that is lost."""
        return PeerFailed(
            f"{member.worker} (rank {member.rank} of {len(self.members)} in {self.label!r}, generation"
            f" {self.number}) {why}",
            member.worker,
            member.rank,
            self.number,
            has_returned,
        )

    def changed(self, worker: str) -> MembersChanged:
        """The error about one that has come."""
        return MembersChanged(
            f"{worker} has come to {self.label!r}: generation {self.number} ends, and the next one begins"
            " with it",
            worker,
            -1,
            self.number,
        )
