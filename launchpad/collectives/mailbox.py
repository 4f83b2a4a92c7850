"""Mailbox: the messages from other ranks, until this rank's operation takes them.

It is not an `lp.Inbox`, for three reasons. An operation's wait also ends if the generation ends, or if the
rank that it waits for has returned. Messages are compared with this rank's operation. And each microsecond
counts.
"""

from __future__ import annotations

import functools
import time
import weakref
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from launchpad.courier import fork
from launchpad.courier.interruptions import Lock, is_interruption
from launchpad.errors import Stopped
from launchpad.runtime import context
from launchpad.services.waiting import ThreadWait

Key = tuple[str, int, int, int]
"""(communicator, number of the operation in it, step of the operation's algorithm, rank of the sender)."""


class Late(Exception):
    """A message did not come in time. This is not a TimeoutError, because a signal handler may raise one."""


class Gone(Exception):
    """The awaited rank, which is the argument, has returned."""


class Different(Exception):
    """A rank is in a different operation at the same point.

    Its arguments are this rank's operation, the other rank, and the other rank's operation.
    """

    @property
    def rank(self) -> int:
        rank: int = self.args[1]
        return rank


Compare = Callable[[Sequence[int]], Different | None]
"""A function that asks absent ranks for their operation, and returns a difference, or None."""

COMPARE_S = 1.0
"""Seconds that a rank waits for other ranks before it asks them for their operation."""


class Sleeper(Protocol):
    """A wait outside the mailbox, which checks `Mailbox.reason_to_end` when it is woken."""

    def wake(self) -> None: ...


class Mailbox:
    """The messages of one generation. Safe from any thread."""

    def __init__(self) -> None:
        # A thread looks for a message or a reason to end, and then puts its wait into `_waits`. If the
        # message or the reason came between these two steps, nothing would wake the thread.
        self._lock = fork.free_in_child(Lock())
        self._messages: dict[Key, tuple[str, Any]] = {}
        self._waits: dict[Key, ThreadWait[Any]] = {}
        self._operations: dict[str, tuple[int, str]] = {}
        self._meetings: dict[tuple[str, int], _Meeting] = {}
        self._gone: set[int] = set()
        self._sleepers: weakref.WeakSet[Sleeper] = weakref.WeakSet()
        self._error: BaseException | None = None
        self._forget_stop: Callable[[], object] = lambda: None

    def begin(self, communicator: str, number: int, operation: str) -> None:
        """Begin an operation of this rank. Raise Different if a message is here for a different operation."""
        with self._lock:
            self._operations[communicator] = number, operation
            for key, (other_operation, _) in self._messages.items():
                if other_operation != operation and key[:2] == (communicator, number):
                    raise Different(operation, key[3], other_operation)
            meeting = self._meetings.get((communicator, number))
            if meeting is not None and meeting.operation != operation:
                raise Different(operation, min(meeting.parts), meeting.operation)

    def put(self, key: Key, operation: str, data: Any) -> None:
        """Take a message. Raise Different if this rank is in a different operation."""
        with self._lock:
            self._check(key, operation)
            wait = self._waits.pop(key, None)
            if wait is not None:
                wait.succeed(data)
            else:
                self._messages[key] = operation, data

    def progress(self, communicator: str) -> tuple[int, str]:
        """Return the number and the text of the operation that this rank began last."""
        return self._operations.get(communicator, (0, ""))

    def take(self, key: Key, timeout_s: float, compare: Compare | None = None) -> Any:
        """Wait for a message, and return it.

        Args:
            compare: The waits of this rank's own operations pass this. The senders don't know this rank's
                operation, so this rank must ask for theirs.

        Raises:
            Different: the sender is in a different operation.
            Gone: the sender has returned.
            Late: the message did not come in time.
        """
        with self._lock:
            message = self._messages.pop(key, None)
            if message is not None:
                return message[1]
            if self._error is not None:
                raise self._error
            if key[3] in self._gone:
                raise Gone(key[3])
            wait = ThreadWait[Any]()
            self._waits[key] = wait
        return self._wait(wait, key, timeout_s, lambda: [key[3]], compare)

    def meet(
        self,
        key: Key,
        operation: str,
        data: Any,
        timeout_s: float,
        ranks: Sequence[int] = (),
        answer: Callable[[list[Any]], Any] | None = None,
        compare: Compare | None = None,
    ) -> Any:
        """Wait until all ranks have come, and return the answer for all of them.

        The thread that comes last computes the answer. So it is not necessary to wake one thread after
        another.

        Args:
            ranks, answer: The ranks that come, and the function that computes the answer. Only this rank's
                own call passes them.
            compare: As in `take`. Only this rank's own call passes it.

        Raises:
            Different: a rank is in a different operation.
            Gone: a rank has returned without coming here.
            Late: a rank did not come in time.
        """
        with self._lock:
            self._check(key, operation)
            meeting = self._meetings.setdefault(key[:2], _Meeting(operation))
            if meeting.operation != operation:
                raise Different(meeting.operation, key[3], operation)
            meeting.parts[key[3]] = data
            if answer is not None:
                meeting.ranks = ranks
                meeting.answer = answer
            wait = None
            if len(meeting.parts) == len(meeting.ranks):
                del self._meetings[key[:2]]
            else:
                for rank in meeting.ranks:
                    if rank in self._gone and rank not in meeting.parts:
                        raise Gone(rank)
                wait = ThreadWait[Any]()
                self._waits[key] = wait
                meeting.waits[key] = wait
        if wait is not None:
            return self._wait(wait, key, timeout_s, meeting.absent, compare)
        assert meeting.answer is not None
        try:
            result = meeting.answer([meeting.parts[rank] for rank in meeting.ranks])
        except BaseException as error:
            # An error of a signal handler concerns only this rank. For the other ranks, this rank is lost.
            others_error = Gone(key[3]) if is_interruption(error) else error
            with self._lock:
                for rank_key, wait_of_rank in meeting.waits.items():
                    if self._waits.pop(rank_key, None) is wait_of_rank:
                        wait_of_rank.fail(others_error)
            raise
        with self._lock:
            for rank_key, wait_of_rank in meeting.waits.items():
                if self._waits.pop(rank_key, None) is wait_of_rank:
                    wait_of_rank.succeed(result)
        return result

    def _check(self, key: Key, operation: str) -> None:
        """Raise an error if the mailbox has ended, or if a message doesn't match this rank's operation."""
        if self._error is not None:
            raise self._error
        number, own_operation = self.progress(key[0])
        if key[1] < number or (key[1] == number and operation != own_operation):
            raise Different(own_operation, key[3], operation)

    def _wait(
        self,
        wait: ThreadWait[Any],
        key: Key,
        timeout_s: float,
        absent: Callable[[], list[int]],
        compare: Compare | None,
    ) -> Any:
        """Wait for a value. With `compare`, ask the absent ranks for their operation from time to time.

        If two ranks wait for each other in different operations, neither sends anything. Without asking, they
        would never find out.
        """
        deadline = time.monotonic() + timeout_s
        look_s = timeout_s if compare is None else COMPARE_S
        try:
            while not wait.lock.acquire(timeout=max(0.0, min(look_s, deadline - time.monotonic()))):
                if compare is None or time.monotonic() >= deadline:
                    break
                different = compare(absent())
                # A rank may have sent its message, and have gone on to the next operation before it was
                # asked. In this case the message is here by now, so check again. Hold the lock, because a
                # thread that ends several waits holds it until it has ended all of them.
                with self._lock:
                    if different is not None and not wait.has_ended:
                        raise different
        finally:
            if not wait.is_over:
                with self._lock:
                    self._waits.pop(key, None)
        if wait.error is not None:
            raise wait.error
        if not wait.is_over:
            raise Late
        return wait.value

    def end(self, error: BaseException) -> None:
        """End all current and later waits with this error."""
        with self._lock:
            self._error = self._error or error
            waits = list(self._waits.values())
            self._waits.clear()
            for wait in waits:
                wait.fail(self._error)
        self._wake_sleepers()

    def note_returned(self, rank: int) -> None:
        """Note that a rank has returned and sends nothing more. End the waits for it."""
        with self._lock:
            self._gone.add(rank)
            for key in [key for key in self._waits if key[3] == rank]:
                self._waits.pop(key).fail(Gone(rank))
            for meeting in self._meetings.values():
                if rank in meeting.ranks and rank not in meeting.parts:
                    for key in meeting.waits:
                        wait = self._waits.pop(key, None)
                        if wait is not None:
                            wait.fail(Gone(rank))
        self._wake_sleepers()

    def wake_at_end(self, sleeper: Sleeper) -> None:
        """Wake this sleeper whenever `reason_to_end` may have changed. Keep only a weak reference to it."""
        with self._lock:
            self._sleepers.add(sleeper)

    def reason_to_end(self, ranks: Sequence[int]) -> BaseException | None:
        """Return the error that ends a wait for these ranks, or None.

        There is an error if `end` was called, or if one of the ranks has returned.
        """
        error = self._error
        if error is not None:
            # Return a copy, because raising the stored error would add stack frames to it, and keep them
            # alive.
            return type(error)(*error.args)
        errors = [Gone(rank) for rank in ranks if rank in self._gone]
        return errors[0] if errors else None

    def _wake_sleepers(self) -> None:
        with self._lock:
            sleepers = tuple(self._sleepers)
        for sleeper in sleepers:
            sleeper.wake()

    def end_at_stop(self) -> None:
        """Register a callback that ends all waits, in any thread, when the program stops."""
        mailbox_ref = weakref.ref(self)

        def end() -> None:
            mailbox = mailbox_ref()
            if mailbox is not None:
                mailbox.end(Stopped())

        me = context.current()
        me.stop.call_at_stop(end)
        self._forget_stop = functools.partial(me.stop.remove_handler, end)

    def forget_stop(self) -> None:
        """Remove the callback of `end_at_stop`, once the mailbox is no longer used."""
        self._forget_stop()


@dataclass
class _Meeting:
    """An operation in which all ranks send data to this one. `ranks` is empty until this rank has come."""

    operation: str
    ranks: Sequence[int] = ()
    answer: Callable[[list[Any]], Any] | None = None
    parts: dict[int, Any] = field(default_factory=dict)
    waits: dict[Key, ThreadWait[Any]] = field(default_factory=dict)

    def absent(self) -> list[int]:
        """Return the ranks that have not come."""
        return [rank for rank in self.ranks if rank not in self.parts]
