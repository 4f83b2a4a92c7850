"""Caller: the worker that called a method, and whether it has ended since."""

from __future__ import annotations

import re
import time
import weakref
from dataclasses import dataclass, field
from typing import Any

from launchpad.courier import call_stack
from launchpad.courier import caller as _courier
from launchpad.errors import NotRunningError
from launchpad.runtime import context

_NAME = re.compile(r"(?P<label>.+)-(?P<index>\d+)(\.\d+)?")


@dataclass(frozen=True)
class Caller:
    """The caller of a method, as `lp.caller()` returns it. Keep it, pickle it, compare it, use it as a key.

    Example:
        class Votes:
            def vote(self, choice: str) -> None:
                self.of[lp.caller()] = choice       # one for each start of each worker

    Attributes:
        worker: The worker's name, `actor-3`; `pid 4711` for a process that is not a worker, such as the
            script.
        attempt: The number of that worker's start; 0 outside workers.
        incarnation: A text that is unique to one start of one worker in one launch. Two calls with equal
            texts come from the same start.
    """

    worker: str
    attempt: int
    incarnation: str
    _answered: _AnsweredCall | None = field(default=None, repr=False, compare=False)

    def __reduce__(self) -> tuple[Any, ...]:
        return Caller, (self.worker, self.attempt, self.incarnation)

    @property
    def label(self) -> str:
        """The group of the worker; empty outside workers."""
        if not self.attempt:
            return ""
        match = _NAME.fullmatch(self.worker)
        return match["label"] if match else self.worker

    @property
    def replica_index(self) -> int:
        """The number of the worker in its group."""
        match = _NAME.fullmatch(self.worker)
        return int(match["index"]) if match and self.attempt else 0

    @property
    def is_gone(self) -> bool:
        """True if this attempt of the worker has ended, or can no longer get an answer to its call.

        While a method or coroutine answers the call, this is known at once: the connection has ended, the
        caller has cancelled the call, or its deadline has passed. After the call, and in a stream, it is
        known when the supervisor announces the attempt's end. The supervisor does so soon after the end, or
        later on Kubernetes.
        """
        if self._answered is not None and self._answered.is_pointless():
            return True
        return has_ended(self)


@dataclass(frozen=True)
class _AnsweredCall:
    """The call of a caller while its method runs in a thread, or as a coroutine with an outcome."""

    # The reference is weak, because user code may keep the caller for longer than the connection exists.
    connection: weakref.ref[_courier.RemoteCaller]
    call_id: int
    deadline: float | None
    record: call_stack.CallRecord
    entry: call_stack.Entry | None
    outcome: weakref.ref[_courier.CoroutineOutcome] | None

    def is_pointless(self) -> bool:
        """Return True if the method still runs, and its caller would get no answer."""
        is_late = self.deadline is not None and self.deadline <= time.monotonic()
        connection = self.connection()
        if self.outcome is not None:
            outcome = self.outcome()
            if outcome is None or outcome.is_done:
                return False
            return is_late or outcome.is_cancelled or connection is None or connection.is_gone()
        entry = self.record.innermost
        while entry is not None and entry is not self.entry:
            entry = entry[0]
        if entry is None:
            return False
        return is_late or connection is None or connection.is_gone(self.call_id)


def caller() -> Caller:
    """Return the caller of the method that runs here.

    Works in served methods, in coroutines, and in the streams that methods return. It doesn't work in threads
    that a method starts, nor in batched methods, which have several callers.

    Example:
        class Barrier:
          def arrive(self):
            self.arrived.add(lp.caller().worker)

    Raises:
        NotRunningError: this thread or coroutine is not answering a call.
    """
    call = _courier.current.get()
    if call is None:
        raise NotRunningError(
            "lp.caller() was called where no call is answered. It works in a method that others call, in the"
            " thread or the coroutine that runs it; not in a batched method, which has several callers."
        )
    name, attempt, incarnation = call.peer
    record = call_stack.here.record
    call_context = call_stack.current_call.get()
    answered = _AnsweredCall(
        weakref.ref(call),
        call.call_id,
        None if call_context is None else call_context.deadline,
        record,
        record.innermost,
        _courier.outcome.get(),
    )
    return Caller(name, attempt, incarnation.hex(), answered)


def try_caller() -> Caller | None:
    """Return the caller of the method that runs here; None if this code is not answering a call."""
    try:
        return caller()
    except NotRunningError:
        return None


def has_ended(each: Caller) -> bool:
    """Return True once the supervisor has announced that this attempt of the caller has ended."""
    me = context.try_current()
    return me is not None and me.link.has_ended(each.worker, each.attempt)
