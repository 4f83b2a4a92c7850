"""Mailbox: the messages of other ranks, until this rank's operation takes them.

Not an `lp.Inbox`, since an operation's wait has to end for more reasons (the generation ends, the rank that
it waits for has returned), what arrives is compared with what this rank does, and each microsecond counts.
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
"""(communicator, number of the operation in it, step of its algorithm, rank of the sender)."""


class Late(Exception):
    """A message did not come in time. No TimeoutError, which a signal handler may raise."""


class Gone(Exception):
    """The rank that is waited for, its argument, has returned."""


class Different(Exception):
    """A message belongs to another operation than this rank's at the same point: ours, the rank, theirs."""

    @property
    def rank(self) -> int:
        rank: int = self.args[1]
        return rank


Compare = Callable[[Sequence[int]], Different | None]
"""Asks ranks that have not come what they do; what is different, if anything is."""

COMPARE_S = 1.0
"""How long a rank waits for others before it asks them what they do."""


class Sleeper(Protocol):
    """What waits for a rank elsewhere, and asks for `Mailbox.reason_to_end`."""

    def wake(self) -> None: ...


class Mailbox:
    """The messages of one generation. Safe from any thread."""

    def __init__(self) -> None:
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
        """This rank's operation begins. Raises Different for messages of another one."""
        with self._lock:
            self._operations[communicator] = number, operation
            for key, (theirs, _) in self._messages.items():
                if theirs != operation and key[:2] == (communicator, number):
                    raise Different(operation, key[3], theirs)
            meeting = self._meetings.get((communicator, number))
            if meeting is not None and meeting.operation != operation:
                raise Different(operation, min(meeting.parts), meeting.operation)

    def put(self, key: Key, operation: str, data: Any) -> None:
        """A message has come. Raises Different if this rank does something else."""
        with self._lock:
            self._check(key, operation)
            if (wait := self._waits.pop(key, None)) is not None:
                wait.succeed(data)
            else:
                self._messages[key] = operation, data

    def progress(self, communicator: str) -> tuple[int, str]:
        """The number of the operation that this rank has begun last, and which it is."""
        return self._operations.get(communicator, (0, ""))

    def take(self, key: Key, timeout_s: float, compare: Compare | None = None) -> Any:
        """The message, once it has come.

        Args:
            compare: Given by this rank itself, which has told its sender nothing of what it does.

        Raises:
            Different: its sender does something else.
            Gone: its sender has returned.
            Late: it did not come in time.
        """
        with self._lock:
            if (message := self._messages.pop(key, None)) is not None:
                return message[1]
            if self._error is not None:
                raise self._error
            if key[3] in self._gone:
                raise Gone(key[3])
            wait = self._waits[key] = ThreadWait[Any]()
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
        """What is answered to all, once all have come: worked out by the thread that comes last.

        So those that were waiting for an answer are not woken one after the other.

        Args:
            ranks, answer: Given by this rank itself: those that come, and what answers them.
            compare: Given by this rank itself, as for `take`.

        Raises:
            Different: one does something else.
            Gone: one that has not come has returned.
            Late: one did not come in time.
        """
        with self._lock:
            self._check(key, operation)
            meeting = self._meetings.setdefault(key[:2], _Meeting(operation))
            if meeting.operation != operation:
                raise Different(meeting.operation, key[3], operation)
            meeting.parts[key[3]] = data
            if answer is not None:
                meeting.ranks, meeting.answer = ranks, answer
            wait = None
            if len(meeting.parts) == len(meeting.ranks):
                del self._meetings[key[:2]]
            else:
                for rank in meeting.ranks:
                    if rank in self._gone and rank not in meeting.parts:
                        raise Gone(rank)
                wait = self._waits[key] = meeting.waits[key] = ThreadWait[Any]()
        if wait is not None:
            return self._wait(wait, key, timeout_s, meeting.absent, compare)
        assert meeting.answer is not None
        try:
            result = meeting.answer([meeting.parts[rank] for rank in meeting.ranks])
        except BaseException as error:
            # What a signal handler raises is for this rank alone: the others wait for one that is lost.
            others_error = Gone(key[3]) if is_interruption(error) else error
            with self._lock:
                for waiting, other in meeting.waits.items():
                    if self._waits.pop(waiting, None) is other:
                        other.fail(others_error)
            raise
        with self._lock:
            for waiting, other in meeting.waits.items():
                if self._waits.pop(waiting, None) is other:
                    other.succeed(result)
        return result

    def _check(self, key: Key, operation: str) -> None:
        """A message can be taken in: nothing has ended, and it fits to what this rank does."""
        if self._error is not None:
            raise self._error
        number, ours = self.progress(key[0])
        if key[1] < number or (key[1] == number and operation != ours):
            raise Different(ours, key[3], operation)

    def _wait(
        self,
        wait: ThreadWait[Any],
        key: Key,
        timeout_s: float,
        absent: Callable[[], list[int]],
        compare: Compare | None,
    ) -> Any:
        """Waits; where there is something to compare with, asks those that are absent from time to time.

        Two ranks that wait for each other in different operations send nothing, and would not find out.
        """
        deadline = time.monotonic() + timeout_s
        look_s = timeout_s if compare is None else COMPARE_S
        try:
            while not wait.lock.acquire(timeout=max(0.0, min(look_s, deadline - time.monotonic()))):
                if compare is None or time.monotonic() >= deadline:
                    break
                different = compare(absent())
                # What a rank has sent before it went on to something else is here by now. With the lock:
                # a thread that ends several waits has then ended all of them.
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
        """All waits end with this error, now and later."""
        with self._lock:
            self._error = self._error or error
            waits = list(self._waits.values())
            self._waits.clear()
            for wait in waits:
                wait.fail(self._error)
        self._wake_sleepers()

    def note_returned(self, rank: int) -> None:
        """This rank sends nothing more."""
        with self._lock:
            self._gone.add(rank)
            for key in [key for key in self._waits if key[3] == rank]:
                self._waits.pop(key).fail(Gone(rank))
            for meeting in self._meetings.values():
                if rank in meeting.ranks and rank not in meeting.parts:
                    for key in meeting.waits:
                        if (wait := self._waits.pop(key, None)) is not None:
                            wait.fail(Gone(rank))
        self._wake_sleepers()

    def wake_at_end(self, sleeper: Sleeper) -> None:
        """Wakes it whenever `reason_to_end` may have changed, for as long as it is referred to."""
        with self._lock:
            self._sleepers.add(sleeper)

    def reason_to_end(self, ranks: Sequence[int]) -> BaseException | None:
        """What a wait for these ranks raises from now on: that all is over, or that one has returned."""
        if (error := self._error) is not None:
            return type(error)(*error.args)  # one that is kept would keep the frames that it passes
        gone = [Gone(rank) for rank in ranks if rank in self._gone]
        return gone[0] if gone else None

    def _wake_sleepers(self) -> None:
        with self._lock:
            sleepers = tuple(self._sleepers)
        for sleeper in sleepers:
            sleeper.wake()

    def end_at_stop(self) -> None:
        """Has the program's stop end all waits, in threads as well."""
        mailbox = weakref.ref(self)

        def end() -> None:
            if (it := mailbox()) is not None:
                it.end(Stopped())

        me = context.current()
        me.stop.call_at_stop(end)
        self._forget_stop = functools.partial(me.stop.remove_handler, end)

    def forget_stop(self) -> None:
        """It is over: the program's stop finds no wait here."""
        self._forget_stop()


@dataclass
class _Meeting:
    """An operation for which data of all ranks come together here; without ranks until ours has come."""

    operation: str
    ranks: Sequence[int] = ()
    answer: Callable[[list[Any]], Any] | None = None
    parts: dict[int, Any] = field(default_factory=dict)
    waits: dict[Key, ThreadWait[Any]] = field(default_factory=dict)

    def absent(self) -> list[int]:
        """Return the ranks that have not come."""
        return [rank for rank in self.ranks if rank not in self.parts]
