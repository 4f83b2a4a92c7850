"""The debugger of a worker, through which `launchpad attach` runs pdb in the worker.

    launchpad attach  listens at a socket in the runtime directory
      └─ control endpoint ─▶ launcher ─▶ worker: attach(socket, token) ── connects ──▶ launchpad attach

    runs      A running worker's thread is interrupted where it is, even in a sleep or a wait, and stops in
              pdb. It goes on when the user leaves, or the terminal is gone.
    failed    With `launch(pdb=True)`, a worker that fails waits with its exception until a user has attached
              and has left with `q`. Then it fails as it would have failed at once.
    breakpoint()    A worker that is a process waits there until a user attaches, and goes on when the user
              has left.

A signal interrupts the main thread of a process. Any other thread is interrupted by its trace function (since
Python 3.12) at its next line, so a wait in that thread must end first. Only one terminal can attach at a
time. A stop of the worker closes the session first, so `Stopped` is raised after pdb and not within it.
"""

from __future__ import annotations

import contextlib
import queue
import socket
import sys
import threading
from collections.abc import Callable, Iterator
from types import FrameType
from typing import TYPE_CHECKING

from launchpad.launch.worker.debug_terminal import ACCEPTED, REFUSED, DebugTerminal
from launchpad.outcome import Outcome
from launchpad.runtime.context import RunContext
from launchpad.runtime.events import Debugged
from launchpad.runtime.interrupt import RaisedFromOutside, call_in, raise_in

if TYPE_CHECKING:  # pdb is imported when it is needed
    from launchpad.launch.worker.attached_pdb import AttachedPdb

CallInMain = Callable[[Callable[[FrameType], object]], None]
"""A function that makes the main thread, wherever it is, call another function with its current frame."""


class Debugger:
    """Debugger for one attempt of a worker.

    Args:
        raise_stopped: Raises `Stopped` in the worker's thread.
        call_in_main: None if the worker is a thread, because then signals are not for the worker.

    Attributes:
        thread: The worker's own thread, in which it runs.
    """

    def __init__(
        self,
        context: RunContext,
        raise_stopped: Callable[[], None],
        call_in_main: CallInMain | None,
    ) -> None:
        self._context = context
        self._raise_stopped = raise_stopped
        self._call_in_main = call_in_main
        self.thread: threading.Thread = threading.main_thread()
        # Held while the fields below change or are read together, by the session's thread, the worker's own
        # thread and the thread that stops the worker. Without the lock, a session could begin just after
        # `close` has ended all sessions. Reentrant, because a signal may interrupt the main thread while it
        # holds the lock.
        self._lock = threading.RLock()
        self._terminal: DebugTerminal | None = None
        self._stands_in: threading.Thread | None = None
        self._is_stopped = False
        self._ends = ""
        # Why the worker waits until a terminal attaches: its failure, or a breakpoint.
        self._waits_with = ""
        self._is_waiting = False  # no terminal has attached yet
        self._at_breakpoint: threading.Thread | None = None
        self._session: AttachedPdb | None = None
        # Only one thread at a time is at a breakpoint, or waits with its failure.
        self._breakpoint_lock = threading.Lock()
        self._attached: queue.SimpleQueue[AttachedPdb | None] = queue.SimpleQueue()

    def attach(self, path: str, token: bytes, thread: str = "") -> None:
        """Connect pdb to the terminal that listens at `path`, and return at once.

        Args:
            thread: The name of the thread to interrupt; empty for the worker's own.
        """
        threading.Thread(
            target=self._serve, args=(path, token, thread), name="launchpad-debugger", daemon=True
        ).start()

    def interrupt(self) -> None:
        """Raise `Stopped` in the worker's thread; if the thread is in pdb, as soon as it goes on."""
        with self._lock:
            self._is_stopped = self._stands_in is self.thread
            if not self._is_stopped:
                self._raise_stopped()

    def close(self, why: str) -> None:
        """End the session, if there is one, and refuse others, since the worker stops or has ended."""
        with self._lock:
            self._ends = self._ends or why
            terminal = self._terminal
            thread = self._stands_in
        # This wakes the thread that waits for a terminal. A thread that is just about to wait finds it, too.
        self._attached.put(None)
        if terminal is not None:
            is_busy = not terminal.is_reading
            terminal.close(f"\n{self._context.name} {why}\n")
            if is_busy and thread is not None:  # the thread evaluates something
                self._raise_in(thread, KeyboardInterrupt)

    def wait_with(self, error: BaseException, outcome: Outcome) -> None:
        """Keep a failed worker until a user has looked at its exception, or the worker must stop."""
        me = self._context
        with self._breakpoint_lock:
            with self._lock:
                if self._ends:
                    return
                self._waits_with = f"failed: {outcome.cause}"
            while True:
                pdb = self._wait_for_terminal()
                if pdb is None:
                    break
                pdb.message(outcome.traceback)
                pdb.post_mortem(error)
                if pdb.has_quit:
                    break
        self.close("goes on to fail")
        me.link.report(Debugged(me.name, me.attempt))

    def stand_at(self, frame: FrameType) -> None:
        """Wait until a terminal attaches, then stop the calling thread in pdb at this frame.

        If the worker must stop, or stops during the wait, this just returns.
        """
        # The calling code is evaluated at pdb's prompt.
        if self._stands_in is threading.current_thread():
            return
        me = self._context
        code = frame.f_code
        place = f"{code.co_qualname} ({code.co_filename}, line {frame.f_lineno})"
        with self._breakpoint_lock:
            with self._lock:
                if self._ends:
                    return
                pdb: AttachedPdb | None = self._session
                if pdb is not None and pdb.is_left:  # its end will be reported soon
                    pdb = None
                self._at_breakpoint = threading.current_thread()
                self._waits_with = f"is at breakpoint() in {place}"
            try:
                if pdb is None:
                    pdb = self._wait_for_terminal()
                if pdb is not None:
                    pdb.interrupt(frame)
            finally:
                with self._lock:
                    self._at_breakpoint = None
                    self._waits_with = ""
                    is_left = self._session is None
                if is_left:
                    me.link.report(Debugged(me.name, me.attempt))

    def _serve(self, path: str, token: bytes, thread_name: str) -> None:
        """Serve one session, from the connection to its end."""
        from launchpad.launch.worker.attached_pdb import AttachedPdb

        me = self._context
        with socket.socket(socket.AF_UNIX) as connection, contextlib.suppress(OSError):
            connection.settimeout(None)
            connection.connect(path)
            connection.sendall(token)
            terminal = DebugTerminal(connection)
            with self._lock:
                thread, refusal = self._thread_of(thread_name)
                if self._ends:
                    refusal = f"{me.name} {self._ends}"
                elif self._terminal is not None:
                    refusal = f"{me.name} is in a debugger of another terminal"
                elif thread is not None:
                    self._terminal = terminal
                waits_with = self._waits_with if self._is_waiting else ""
            if thread is None or self._terminal is not terminal:
                connection.sendall(REFUSED + refusal.encode())
                return
            try:
                connection.sendall(ACCEPTED)
                note = f"{waits_with}; in pdb" if waits_with else "in pdb"
                me.link.report(Debugged(me.name, me.attempt, note))
                pdb = AttachedPdb(terminal, lambda: self._standing(threading.current_thread()))
                self._session = pdb
                if waits_with:
                    self._is_waiting = False
                    self._attached.put(pdb)
                else:
                    self._interrupt(thread, pdb)
                terminal.listen(lambda: self._interrupt(thread, pdb))
            finally:
                with self._lock:
                    self._terminal = None
                    self._session = None
                    # If the worker already waits at the next breakpoint, that was reported, and this would
                    # come too late.
                    if not self._is_waiting:
                        me.link.report(Debugged(me.name, me.attempt))

    def _wait_for_terminal(self) -> AttachedPdb | None:
        """Wait until a terminal attaches, and report the wait. Return None if no terminal may attach."""
        me = self._context
        note = f"{self._waits_with}; waits for `attach`"
        with self._lock:
            if not self._ends:
                self._is_waiting = True
                # Report with the lock held, so that the end of an earlier session is not reported after this.
                me.link.report(Debugged(me.name, me.attempt, note, is_waiting=True))
        return self._attached.get()

    def _thread_of(self, name: str) -> tuple[threading.Thread | None, str]:
        """Return the thread with this name, or the reason why it cannot be interrupted."""
        if self._at_breakpoint is not None:
            return self._at_breakpoint, ""
        threads = {thread.name: thread for thread in threading.enumerate()}
        thread = threads.get(name) if name else self.thread
        if thread is None:
            return None, f"{self._context.name} has no thread {name!r}; it has {', '.join(threads)}"
        if sys.version_info < (3, 12) and not self._waits_with and not self._is_main(thread):
            return None, (
                "before Python 3.12 only the main thread of a process can be interrupted: launch with"
                " local_mp, or call breakpoint() in the code"
            )
        return thread, ""

    def _is_main(self, thread: threading.Thread) -> bool:
        return self._call_in_main is not None and thread is threading.main_thread()

    def _interrupt(self, thread: threading.Thread, pdb: AttachedPdb) -> None:
        """Interrupt the thread, as Ctrl-C does; in pdb, interrupt what it evaluates."""
        if self._stands_in is not None:
            terminal = self._terminal
            if terminal is not None and not terminal.is_reading:
                self._raise_in(thread, KeyboardInterrupt)
        elif self._is_main(thread):
            assert self._call_in_main is not None
            self._call_in_main(pdb.interrupt)
        else:
            call_in(thread, pdb.interrupt)

    def _raise_in(self, thread: threading.Thread, error: type[BaseException]) -> None:
        def throw(frame: FrameType) -> None:
            if self._stands_in is thread:  # else the thread has gone on in the meantime
                raise error

        if self._is_main(thread):
            assert self._call_in_main is not None
            self._call_in_main(throw)
        else:
            raise_in(thread, error)

    @contextlib.contextmanager
    def _standing(self, thread: threading.Thread) -> Iterator[None]:
        """Note that the thread is in pdb while the block runs."""
        with self._lock:
            self._stands_in = thread
        try:
            yield
        finally:
            with self._lock:
                self._stands_in = None
                is_stopped = self._is_stopped
                self._is_stopped = False
        if is_stopped:
            raise RaisedFromOutside
