"""Members: executables that live in one worker as threads.

    worker's thread      open ──▶ waits ──▶ run ──▶ waits ──▶ close
    one thread each      open()            run()
                         ended, failed, or the worker is asked to stop ──▶ the waiting one goes on

Each member has a run context of its own, which differs from the worker's in one thing: whether it asked
about stopping. A member that did ends in its own time; one that did not is interrupted.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from launchpad import context
from launchpad.context import RunContext
from launchpad.errors import Stopped
from launchpad.executable import Executable, Run
from launchpad.interruption import Interruption, raise_in

_PATIENCE_S = 1.0
"""How long a member that was interrupted may take to unwind; it may be stuck in a call that waits."""


@dataclass
class RunThreads(Executable):
    """Runs executables as threads of this worker.

    All are opened at once, in threads of their own, since constructors may call each other.
    """

    members: list[Executable]
    return_on_first_completed: bool
    _live: Members | None = field(default=None, init=False)

    def open(self) -> Run | None:
        """Opens all; the run methods of those that have one are then run together."""
        self._live = Members(self.members)
        return self._run if self._live.open() else None

    def _run(self) -> None:
        assert self._live is not None
        self._live.run(self.return_on_first_completed)

    def save(self) -> None:
        """Lets all save themselves."""
        for member in self.members:
            member.save()

    def abandon(self) -> None:
        """None of them serves any more."""
        for member in self.members:
            member.abandon()

    def close(self) -> None:
        """Stops those that still run, and closes all."""
        if self._live is not None:
            self._live.close()


class Members:
    """The threads of one worker, as seen by the worker's own thread."""

    def __init__(self, executables: Sequence[Executable]) -> None:
        context.inherit()
        self._me = context.current()
        self._changed = threading.Condition()
        self._errors: list[BaseException] = []
        self._members = [Member(each, self._me, self._on_end) for each in executables]
        self._me.add_stop_handler(self._notify)  # so the worker's own thread is never interrupted

    def open(self) -> bool:
        """Opens all; whether any of them has something to run."""
        self._together(self._members, Member.open, first=False)
        return any(member.has_run for member in self._members)

    def run(self, first: bool) -> None:
        """Runs what there is to run, until all or the `first` have ended; servers then go on serving."""
        runners = [member for member in self._members if member.has_run]
        self._together(runners, Member.run, first)
        if len(runners) < len(self._members) and not first:
            self._me.report("done", "")
            self._me.stop_event.wait()

    def close(self) -> None:
        """Interrupts those that still run, waits a moment for them, and closes all, the last one first."""
        errors = []
        self._interrupt()
        self._wait(lambda: not self._busy(), _PATIENCE_S)
        for member in self._busy():
            print(f"{member!r} did not stop in time; its thread is left behind", file=sys.stderr)
        for member in reversed(self._members):
            try:
                member.close()
            except BaseException as error:
                errors.append(error)
        if errors:
            raise errors[0]

    def _together(self, members: list[Member], call: Callable[[Member], None], first: bool) -> None:
        """Until all have ended, or one if `first`, or failed; when asked to stop, until all have stopped."""
        for member in members:
            member.start(call)
        may_run = len(members) - 1 if first else 0
        asked = self._me.stop_event
        self._wait(lambda: asked.is_set() or bool(self._errors) or len(self._busy()) <= may_run)
        if asked.is_set():
            self._stop()
        if self._errors:
            raise (self._own_errors() or self._errors)[0]

    def _stop(self) -> None:
        """Waits for those that end in their own time; not for long for those that had to be interrupted."""
        self._me.ask_to_stop()  # that is under way; this waits for the handlers
        self._interrupt()
        self._wait(lambda: all(m.context.heeds_stop for m in self._busy()), _PATIENCE_S)
        self._wait(
            lambda: bool(self._own_errors()) or not any(m.context.heeds_stop for m in self._busy())
        )

    def _own_errors(self) -> list[BaseException]:
        """What members raised, other than because they were interrupted."""
        return [error for error in self._errors if not isinstance(error, Stopped)]

    def _interrupt(self) -> None:
        for member in self._busy():
            if not member.context.heeds_stop:
                member.context.interruption.ask()

    def _busy(self) -> list[Member]:
        return [member for member in self._members if member.is_busy]

    def _wait(self, until: Callable[[], bool], timeout_s: float | None = None) -> None:
        with self._changed:
            self._changed.wait_for(until, timeout_s)

    def _notify(self) -> None:
        with self._changed:
            self._changed.notify_all()

    def _on_end(self, error: BaseException | None) -> None:
        with self._changed:
            self._errors += [error] if error is not None else []
            self._changed.notify_all()


class Member:
    """One executable and the thread it lives in.

    Args:
      executable: What lives.
      worker: The context of the worker that it is a part of.
      on_end: Told, in the member's thread, that a call has ended, and what it raised.
    """

    def __init__(
        self,
        executable: Executable,
        worker: RunContext,
        on_end: Callable[[BaseException | None], None],
    ) -> None:
        self.context = worker.part(Interruption(self._interrupt))
        self.is_busy = False
        self._executable, self._on_end = executable, on_end
        self._run: Run | None = None
        self._thread: threading.Thread | None = None
        self._lock = threading.Lock()
        self._is_open = self._is_closed = False

    @property
    def has_run(self) -> bool:
        """Whether it has something to run; known once it is open."""
        return self._run is not None

    def start(self, call: Callable[[Member], None]) -> None:
        """Calls `Member.open` or `Member.run` in a thread."""
        self._thread = threading.Thread(
            target=self._live, args=(call,), name=f"{self.context.name}-member", daemon=True
        )
        self.is_busy = True
        try:
            self._thread.start()
        except RuntimeError:
            self.is_busy = False
            raise

    def open(self) -> None:
        """Opens the executable; closes it again if the worker has been closed meanwhile."""
        try:
            self._run = self._executable.open()
        finally:
            with self._lock:
                self._is_open = True
                is_late = self._is_closed
            if is_late:
                self._executable.close()

    def run(self) -> None:
        """Runs it."""
        assert self._run is not None
        self.context.phase = "run"
        self._run()

    def close(self) -> None:
        """Closes the executable; one that is being opened, as soon as it is."""
        with self._lock:
            self._is_closed = True
            if not self._is_open:
                return
        self._executable.close()

    def __repr__(self) -> str:
        return f"{type(self._executable).__name__} in {self.context.name}"

    def _live(self, call: Callable[[Member], None]) -> None:
        error: BaseException | None = None
        try:
            with context.entered(self.context), self.context.interruption.allowed():
                call(self)
        except BaseException as raised:
            error = raised
        finally:
            self.is_busy = False
            self._on_end(error)

    def _interrupt(self) -> None:
        assert self._thread is not None
        raise_in(self._thread)
