"""The caller of a method: which worker it is, and whether it still is."""

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
    """Who calls, as `lp.caller()` gives it. It can be kept, pickled, compared, and used as a key.

    Example:
        class Votes:
            def vote(self, choice: str) -> None:
                self.of[lp.caller()] = choice       # one for each start of each worker

    Attributes:
        worker: The worker's name, `actor-3`; `pid 4711` for a process that is no worker, as the script.
        attempt: Which start of that worker; 0 outside of workers.
        incarnation: Another for each start of each worker, in each launch: two calls are of the same start if
            theirs are equal.
    """

    worker: str
    attempt: int
    incarnation: str
    _answered: _AnsweredCall | None = field(default=None, repr=False, compare=False)

    def __reduce__(self) -> tuple[Any, ...]:
        return Caller, (self.worker, self.attempt, self.incarnation)

    @property
    def label(self) -> str:
        """The group of the worker; empty outside of workers."""
        found = _NAME.fullmatch(self.worker)
        return (found["label"] if found else self.worker) if self.attempt else ""

    @property
    def replica_index(self) -> int:
        """The number of the worker in its group."""
        found = _NAME.fullmatch(self.worker)
        return int(found["index"]) if found and self.attempt else 0

    @property
    def is_gone(self) -> bool:
        """Whether this attempt of the worker has ended; during its call, whether no answer would arrive.

        During the call of a method or coroutine that is seen at once: the connection has ended, the caller
        has cancelled the call, or its deadline has passed. Of a caller that is kept for longer, and in a
        stream, it is what the supervisor announces: soon after the end, later on Kubernetes.
        """
        if self._answered is not None and self._answered.is_in_vain():
            return True
        return has_ended(self)


@dataclass(frozen=True)
class _AnsweredCall:
    """The call of a caller, as long as its method runs: in a thread, or as a coroutine with an outcome."""

    connection: weakref.ref[_courier.RemoteCaller]  # as the caller may be kept for longer
    call_id: int
    deadline: float | None
    record: call_stack.CallRecord
    entry: call_stack.Entry | None
    outcome: weakref.ref[_courier.CoroutineOutcome] | None

    def is_in_vain(self) -> bool:
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
    """Who has called the method that runs here.

    Works in methods that are served, in their coroutines and in the streams that they return; not in threads
    that a method starts, nor in batched methods, which have several callers.

    Example:
        class Barrier:
          def arrive(self):
            self.arrived.add(lp.caller().worker)

    Raises:
        NotRunningError: no call is answered here.
    """
    call = _courier.current.get()
    if call is None:
        raise NotRunningError(
            "lp.caller() was called where no call is answered. It works in a method that others call, in the"
            " thread or the coroutine that runs it; not in a batched method, which has several callers."
        )
    name, attempt, incarnation = call.peer
    record, call_context = call_stack.here.record, call_stack.current_call.get()
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
    """Return who has called the method that runs here; None where no call is answered."""
    try:
        return caller()
    except NotRunningError:
        return None


def has_ended(each: Caller) -> bool:
    """True once the supervisor has announced that this attempt of the caller has ended."""
    me = context.try_current()
    return me is not None and me.link.has_ended(each.worker, each.attempt)
