"""Thread groups: executables that run in one worker as threads.

    worker's thread      open ──▶ waits ──▶ run ──▶ waits ──▶ close
    one thread each      open()            run()
                         ended, failed, or the worker is asked to stop ──▶ the waiting thread goes on

Each executable has its own run context with a stop signal. The signal records whether the executable's code
watches for the stop. If the code does, its thread ends by itself; if not, the thread is interrupted.
"""

from __future__ import annotations

import contextlib
import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from launchpad.runtime import context, results
from launchpad.runtime.context import RunContext
from launchpad.runtime.events import Done
from launchpad.runtime.executable import Executable, Run
from launchpad.runtime.interrupt import Interruption, interrupt_thread, is_interruption

_STOP_TIMEOUT_S = 1.0
"""Seconds to wait for an interrupted thread to unwind. It may be blocked in a call."""


@dataclass
class RunColocated(Executable):
    """An executable that runs several executables as threads of this worker.

    It opens all of them at once, each in its own thread, because the nodes' constructors may call each other.
    """

    executables: list[Executable]
    return_on_first_completed: bool
    _threads: list[NodeThread] = field(default_factory=list, init=False)

    def open(self) -> Run | None:
        """Open all executables; return a function that runs those that have something to run."""
        context.inherit()
        self._me = context.current()
        # It is notified when a thread has ended its call, and when the stop comes.
        self._changed = threading.Condition()
        self._errors: list[BaseException] = []
        self._own_errors: list[BaseException] = []
        self._threads = [
            NodeThread(executable, self._me, i, self._on_end)
            for i, executable in enumerate(self.executables)
        ]
        # A worker with a handler watches for the stop, so its own thread is never interrupted.
        self._me.stop.add_handler(self._wake)
        self._together(self._threads, NodeThread.open, first=False)
        return self._run if any(node_thread.has_run for node_thread in self._threads) else None

    def save(self) -> None:
        """Save each executable in its own context. It looks for its saved state under this context's name."""
        self._interrupt(lambda: not self._busy())
        for node_thread in self._threads:
            with context.entered(node_thread.context):
                node_thread.executable.save()

    def release(self) -> None:
        """Release what each executable holds, the last one first, and then what this worker holds.

        An executable whose thread cannot be interrupted keeps what it holds.
        """
        self._interrupt(lambda: not self._busy())
        errors: list[BaseException] = []
        for node_thread in reversed(self._threads):
            if node_thread.is_busy:
                continue
            try:
                with context.entered(node_thread.context):
                    node_thread.executable.release()
            except BaseException as error:
                errors.append(error)
        super().release()
        if errors:
            raise errors[0]

    def abandon(self) -> None:
        for executable in self.executables:
            executable.abandon()

    def _run(self) -> Any:
        """Call all runs, and wait until all, or the first, have ended. Servers then go on serving.

        Return a tuple of what each run returned, or None if all of them returned None.
        """
        first = self.return_on_first_completed
        runners = [node_thread for node_thread in self._threads if node_thread.has_run]
        self._together(runners, NodeThread.run, first)
        result = tuple(node_thread.result for node_thread in self._threads)
        has_any = any(value is not None for value in result)
        me = self._me
        # If the worker was stopped, it has not done its work. Reporting Done would end the program.
        if len(runners) < len(self._threads) and not first and not me.stop.event.is_set():
            if has_any:
                event = results.returned(me.name, me.attempt, result)
                if event is not None:
                    me.link.report(event)
            me.link.report(Done(me.name, me.attempt))
            me.stop.event.wait()
            return None
        return result if has_any else None

    def close(self) -> None:
        """Interrupt the threads that still run, and wait a moment. Close all executables, the last one first.

        A thread that does not stop in time is left behind.
        """
        errors = []
        self._interrupt(lambda: not self._busy())
        for node_thread in self._busy():
            title = f"{type(node_thread.executable).__name__} in {node_thread.context.name}"
            print(f"{title} did not stop in time; its thread is left behind", file=sys.stderr)
        for node_thread in reversed(self._threads):
            try:
                node_thread.close()
            except BaseException as error:
                errors.append(error)
        # There are no threads if the worker was stopped before `open`.
        if self._threads:
            # The worker's context outlives this object. Through the handler it would keep the nodes' clients
            # alive. The handler is missing if the stop came before `open` added it.
            with contextlib.suppress(ValueError):
                self._me.stop.remove_handler(self._wake)
        if errors:
            raise errors[0]

    def _wake(self) -> None:
        """Make the worker's thread check for the stop."""
        self._on_end(None)

    def _together(
        self, threads: list[NodeThread], call: Callable[[NodeThread], None], first: bool
    ) -> None:
        """Start a call in each thread, and wait until all calls have ended, or one has failed.

        With `first`, wait only until one call has ended. When the worker is asked to stop, wait for all of
        them: without limit for threads that watch for the stop, only a moment for those that are interrupted.
        """
        for node_thread in threads:
            node_thread.start(call)
        may_run = len(threads) - 1 if first else 0
        stop = self._me.stop.event
        self._wait(lambda: stop.is_set() or bool(self._errors) or len(self._busy()) <= may_run)
        if stop.is_set():
            # The stop has begun already. This call only waits for the handlers of the stop.
            self._me.stop.request()
            self._interrupt(lambda: all(t.context.stop.is_watched for t in self._busy()))
            self._wait(
                lambda: (
                    bool(self._own_errors)
                    or not any(t.context.stop.is_watched for t in self._busy())
                )
            )
        if self._errors:
            raise (self._own_errors or self._errors)[0]

    def _interrupt(self, until: Callable[[], bool]) -> None:
        """Interrupt the threads that don't watch for the stop, and wait a moment for `until` to be True."""
        # A stop may come before `open` has made any threads.
        if not self._threads:
            return
        for node_thread in self._busy():
            if not node_thread.context.stop.is_watched:
                node_thread.context.stop.interruption.request()
        self._wait(until, _STOP_TIMEOUT_S)

    def _busy(self) -> list[NodeThread]:
        return [node_thread for node_thread in self._threads if node_thread.is_busy]

    def _wait(self, until: Callable[[], bool], timeout_s: float | None = None) -> None:
        with self._changed:
            self._changed.wait_for(until, timeout_s)

    def _on_end(self, error: BaseException | None) -> None:
        with self._changed:
            if error is not None:
                self._errors.append(error)
                if not is_interruption(error):
                    self._own_errors.append(error)
            self._changed.notify_all()


class NodeThread:
    """One executable, and the thread that it runs in.

    At the end of each call, the thread passes the call's error, or None, to `on_end`.
    """

    def __init__(
        self,
        executable: Executable,
        worker: RunContext,
        index: int,
        on_end: Callable[[BaseException | None], None],
    ) -> None:
        interruption = Interruption(lambda: interrupt_thread(self._thread))
        interruption.on_caught = worker.stop.interruption.on_caught
        self.context = worker.child(index, interruption)
        self.is_busy = False
        self.has_run = False
        self.result: Any = None
        self.executable = executable
        self._on_end = on_end
        self._run: Run | None = None
        # The first `start` sets it.
        self._thread: threading.Thread
        # `close` may come while `open` runs. Exactly one of them must close the executable, so each sets
        # its flag and looks at the other's in one step.
        self._lock = threading.Lock()
        self._is_open = False
        self._is_closed = False

    def start(self, call: Callable[[NodeThread], None]) -> None:
        """Call `NodeThread.open` or `NodeThread.run` in a thread."""
        self._thread = threading.Thread(
            target=self._run_call, args=(call,), name=f"{self.context.name}-member", daemon=True
        )
        # Set the flag before the start, because the thread may end, and reset it, before `start` returns.
        self.is_busy = True
        try:
            self._thread.start()
        except RuntimeError:
            self.is_busy = False
            raise

    def open(self) -> None:
        """Open the executable. If `close` was called in the meantime, close it again."""
        try:
            self._run = self.executable.open()
            self.has_run = self._run is not None
        finally:
            with self._lock:
                self._is_open = True
                is_late = self._is_closed
            if is_late:
                self.executable.close()

    def run(self) -> None:
        assert self._run is not None
        self.result = self._run()

    def close(self) -> None:
        """Close the executable. If it is being opened, `open` closes it as soon as it is open."""
        with self._lock:
            self._is_closed = True
            if not self._is_open:
                return
        self.executable.close()

    def _run_call(self, call: Callable[[NodeThread], None]) -> None:
        error: BaseException | None = None
        try:
            with context.entered(self.context), self.context.stop.interruption.allowed():
                call(self)
        except BaseException as raised:
            error = raised
        finally:
            self.context.link.end_if_child(error)
            # Reset the flag before `_on_end` wakes the worker's thread, which counts the busy threads.
            self.is_busy = False
            self._on_end(error)
