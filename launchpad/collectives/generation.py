"""Generation: one rank's view of a generation of a collective: its members, and the error that ended it."""

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
"""Seconds to wait, after another member was asked to stop, until this worker is asked, too.

If this worker is not asked, the other member counts as lost.
"""

NOTICE_S = STOP_S + 1.0
"""Seconds to wait, after a call has failed, until its cause is known."""


class Generation:
    """The members of a generation, and the error that ended it. Safe from any thread.

    Args:
        number: The number of the generation, from 1.
        members: The members, by rank.
        rank: The rank of this worker.
        label: The label of the group, for messages.
        report: A function that sends this rank's reports to the rendezvous.
    """

    def __init__(
        self,
        number: int,
        members: tuple[Member, ...],
        rank: int,
        label: str,
        report: Callable[[Event], None],
    ) -> None:
        self.number = number
        self.members = members
        self.rank = rank
        self.label = label
        self._report = report
        self._error: Exception | None = None
        self._has_ended = interruptions.Event()
        # Several threads may end the generation at once. The first error must count, and each callback must
        # run once. A callback that is added at the same time must either be one of these, or be called at
        # once.
        self._lock = Lock()
        self._callbacks: list[Callable[[Exception], object]] = []
        self.returned: set[int] = set()
        self._on_return: list[Callable[[int], None]] = []
        self._on_stop: list[Callable[[], object]] = []
        self._is_stopping = False
        fork.drop_in_child(self)

    def drop_inherited(self) -> None:
        """End the generation in a forked child, because only the parent is the rank.

        The parent isn't notified.
        """
        # Make a new lock, because another thread may have held the old one at the fork.
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
        """The error that ended the generation, as a new object each time. None until the generation ends."""
        error = self._error
        return None if error is None else type(error)(*error.args)

    def check(self) -> None:
        """Raise the error that ended the generation, if it has ended."""
        if self._error is not None:
            raise type(self._error)(*self._error.args)

    def end(self, error: Exception) -> None:
        """End the generation on this rank. A second call does nothing."""
        with self._lock:
            if self._error is not None:
                return
            self._error = error
            callbacks = self._callbacks
            self._callbacks = []
        try:
            for callback in callbacks:
                try:
                    callback(error)
                except Exception:
                    # Go on, because the other callbacks must free their waits, too.
                    traceback.print_exc()
        finally:
            self._has_ended.set()

    def wait_end(self, timeout_s: float) -> bool:
        """Wait until the generation ends. Return False after the timeout, or if this worker must stop."""
        deadline = time.monotonic() + timeout_s
        while not self._has_ended.wait(_LOOK_S):
            if time.monotonic() > deadline or context.is_stopping():
                return False
        return True

    def on_end(self, callback: Callable[[Exception], object]) -> None:
        """Call `callback` once, in a thread of launchpad, with the error that ends the generation.

        If the generation has ended already, call it at once.
        """
        with self._lock:
            if self._error is None:
                self._callbacks.append(callback)
                return
        callback(self._error)

    def on_stop(self, callback: Callable[[], object]) -> None:
        """Call `callback` when a member has left and this worker is asked to stop, too.

        If this has happened already, call it at once.
        """
        with self._lock:
            self._on_stop.append(callback)
            is_stopping = self._is_stopping
        if is_stopping:
            callback()

    def note_stop(self) -> None:
        """Note that a member has left because the program stops or the group restarts.

        This ends waits for the member.
        """
        with self._lock:
            self._is_stopping = True
            callbacks = tuple(self._on_stop)
        for callback in callbacks:
            callback()

    def on_return(self, callback: Callable[[int], None]) -> None:
        """Call `callback` with each rank whose function returns or has returned."""
        self._on_return.append(callback)
        for rank in tuple(self.returned):
            callback(rank)

    def note_returned(self, rank: int) -> None:
        """Note that the function of this rank has returned."""
        self.returned.add(rank)
        for callback in tuple(self._on_return):
            callback(rank)

    def missed(self, rank: int, while_in: str) -> Exception:
        """Report that this rank waits for a rank that has returned, and return the error for the wait."""
        member = self.members[rank]
        self._report(Lost(self.number, member, f"has returned, {while_in}", has_returned=True))
        self.wait_end(NOTICE_S)
        return self.error or self.lost(member, "has returned", has_returned=True)

    def failed_call(self, rank: int, cause: Exception) -> Exception:
        """Return the error for a failed call to a rank. If the rendezvous sends one in time, return that."""
        self.wait_end(NOTICE_S)
        return self.error or self.lost(self.members[rank], f"does not answer: {cause}")

    def mismatch(self, ours: str, rank: int, theirs: str) -> Exception:
        """End the generation because two ranks are in different operations. Notify the others.

        Return the error.
        """
        text = (
            f"{self.name_of(self.rank)} is in {ours}, while {self.name_of(rank)} is in {theirs}: all ranks"
            " have to make the same calls in the same order, with values of the same structure, types and"
            " shapes"
        )
        return self._broken(CollectiveMismatch(text), is_late=False)

    def late(self, text: str) -> Exception:
        """End the generation because ranks did not come in time. Notify the others, and return the error."""
        return self._broken(TimeoutError(text), is_late=True)

    def name_of(self, rank: int) -> str:
        """Return the name of a rank for messages, such as `trainer-2 (rank 2)`."""
        return f"{self.members[rank].worker} (rank {rank})"

    def _broken(self, error: Exception, *, is_late: bool) -> Exception:
        # Report before `end`. A thread that `end` wakes makes this rank leave, and otherwise the other ranks
        # would learn that it has left before they learn why.
        self._report(Broken(self.number, str(error), is_late))
        self.end(error)
        return self.error or error

    def lost(self, member: Member, why: str, *, has_returned: bool = False) -> PeerFailed:
        """Return the error that says that a member is lost."""
        return PeerFailed(
            f"{member.worker} (rank {member.rank} of {len(self.members)} in {self.label!r}, generation"
            f" {self.number}) {why}",
            member.worker,
            member.rank,
            self.number,
            has_returned,
        )

    def changed(self, worker: str) -> MembersChanged:
        """Return the error that says that a worker has come back."""
        return MembersChanged(
            f"{worker} has come to {self.label!r}: generation {self.number} ends, and the next one begins"
            " with it",
            worker,
            -1,
            self.number,
        )
