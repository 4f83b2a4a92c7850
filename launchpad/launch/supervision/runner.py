"""The thread of a launch that owns its supervisor, and sends the supervisor's commands to the backend.

    backend, script ── events, requests ──▶ inbox ──▶ Supervisor ── commands ──▶ backend
                                                           └─ states, failures ──▶ Running

It is not a daemon thread: a script whose last line is `lp.launch(program)` runs until this thread is done.
"""

from __future__ import annotations

import contextlib
import logging
import queue
import threading
import time
import traceback
from collections.abc import Callable, Collection
from dataclasses import replace
from typing import TYPE_CHECKING

from launchpad.courier import WorkerFailed, own_threads
from launchpad.courier.client import call
from launchpad.courier.light_dataclass import dataclass
from launchpad.errors import NotRunningError
from launchpad.launch.backends.backend import Workers
from launchpad.launch.logs.log_files import last_lines
from launchpad.launch.output.printer import Output
from launchpad.launch.plan import LaunchPlan, WorkerPlan
from launchpad.launch.rundir import history
from launchpad.launch.rundir.directory import RunDirectory
from launchpad.launch.rundir.history import RunHistory
from launchpad.launch.supervision import look
from launchpad.launch.supervision.inquiries import CountsRequest, Inquiries, Recording
from launchpad.launch.supervision.lifetime import Lifetime
from launchpad.launch.supervision.supervisor import Supervisor
from launchpad.launch.supervision.worker_state import Decided, PrintNote, State, WorkerState
from launchpad.runtime.commands import (
    AnnounceGone,
    KillWorker,
    StartWorker,
    StopWorker,
)
from launchpad.runtime.events import (
    Debugged,
    EdgesCounted,
    Ended,
    Event,
    Ready,
    SpansRecorded,
    WorkerNote,
)

if TYPE_CHECKING:
    from launchpad.launch.worker.worker_threads import ScriptThreads

_log = logging.getLogger("launchpad.supervision")

_KEPT_LINES = 200
"""The last lines of a failed worker's log that are kept: its traceback, and some lines before it."""


_TAKEN_S = 5.0
"""The most seconds that a script waits, when it adds a worker, until the supervisor has the worker."""


@dataclass(frozen=True)
class StopRequest:
    """A request of the script, or of a user, to stop the program."""

    reason: str
    at_once: bool = False
    note: str = ""
    """What to print on the terminal."""


@dataclass(frozen=True)
class RestartRequest:
    """A request to restart a worker."""

    worker: str
    reason: str


@dataclass(frozen=True)
class EndAwaited:
    """A notice that the script waits for the end of the program, without a limit."""


@dataclass(frozen=True)
class OwnThreadDied:
    """A notice that one of launchpad's own threads here has died, so its work is no longer done."""

    text: str


class BrokenLauncher(Exception):
    """The error of a launcher that cannot go on. Its text says why."""


Message = (
    Event
    | StopRequest
    | RestartRequest
    | EndAwaited
    | CountsRequest
    | Recording
    | WorkerPlan
    | OwnThreadDied
)
"""A report or a request. A plan asks for one more worker, which the script adds."""

Inbox = queue.SimpleQueue[Message]


class Runner:
    """Runs one launch, from the start of its first worker to the end of its last one.

    Args:
        workers: The workers of the backend; they report to the inbox.
        undo: Closed when the program has ended, and `is_published` is set.

    Attributes:
        thread: The runner's thread, which `Running.start` starts.
        is_published: An event. `Running.start` sets it when it adds nothing more to `undo`.
        lifetime: The lifetime of the program. Threads use it to wait for changes.
        inquiries: The script's questions to all workers.
        crash: The exception that ended the thread early, if one did.
        has_grace: True if workers get time to stop by themselves.
    """

    def __init__(
        self,
        plan: LaunchPlan,
        run: RunDirectory,
        workers: Workers,
        output: Output,
        inbox: Inbox,
        undo: contextlib.ExitStack,
        grace_s: float,
    ) -> None:
        self.supervisor = Supervisor(plan, grace_s)
        self.workers = workers
        self._own: ScriptThreads | None = None  # made with its first thread
        name = f"launchpad-{plan.program}"
        self.thread = threading.Thread(target=self._run, name=name, daemon=False)
        self.is_published = threading.Event()
        self.crash: BaseException | None = None
        self.has_grace = grace_s > 0
        self._skips_grace = False
        self.inbox = inbox
        self.lifetime = Lifetime(plan.program)
        self.inquiries = Inquiries(self.supervisor, self.lifetime, inbox.put)
        self._plan = plan
        self._directory = run
        self._output = output
        self._undo = undo

    def states(self) -> list[WorkerState]:
        with self.lifetime.changed:
            return list(self.supervisor.workers.values())

    def history(self) -> RunHistory:
        """Return the history of the run so far."""
        past_s = time.time() - time.monotonic()
        with self.lifetime.changed:
            workers = list(self.supervisor.workers.values())
            failures = list(self.supervisor.failures)
        attempts = (attempt.moved(past_s) for worker in workers for attempt in worker.attempts)
        program = self._plan.program
        now = time.time()
        if not self.supervisor.is_over:
            return RunHistory(program, tuple(attempts), tuple(failures))
        edges = look.edges(workers, (), self.lifetime.uptime_s)
        return RunHistory(program, tuple(attempts), tuple(failures), now, edges)

    def failure_of(self, worker: str) -> Exception | None:
        """Return the error of a call to a worker that has ended for good; None if it has not."""
        # Hold the lock, so as not to see a worker that has ended and is just about to be restarted.
        with self.lifetime.changed:
            state = self.supervisor.workers[worker]
            if state.state is not State.ENDED or state.outcome is None:
                return None
            return WorkerFailed(state.outcome.headline(), server=worker)

    def workers_of(self, worker: str) -> Workers:
        """Return what started a worker: the backend or, for a thread of the script, this process."""
        own = self._own
        return own if own is not None and worker in own else self.workers

    def add_thread(self, name: str, function: Callable[[], object]) -> None:
        """Add a worker that is a thread of the script.

        Raises:
            ValueError: the name is taken.
            NotRunningError: this is a forked child of the launching process.
        """
        self.lifetime.refuse_in_fork()
        from launchpad.launch.worker.worker_threads import ScriptThreads

        with self.lifetime.changed:
            if self._own is None:
                places = self.workers.places()
                self._own = ScriptThreads(self._plan, self._directory, self.inbox.put, places)
            if name in self.supervisor.workers or name in self._own:
                raise ValueError(f"program {self._plan.program!r} has a worker {name!r} already")
            self.inbox.put(self._own.add(name, function))
            # Wait until the supervisor has the worker, so that the caller's next call finds it.
            supervisor = self.supervisor
            self.lifetime.changed.wait_for(
                lambda: (
                    name in supervisor.workers
                    or supervisor.is_stopping
                    or self.lifetime.done.is_set()
                ),
                _TAKEN_S,
            )

    def wait_for(
        self,
        labels: Collection[str] | None = None,
        first: bool = False,
        timeout_s: float | None = None,
        *,
        done_is_enough: bool = False,
    ) -> bool:
        """Wait until the program has ended, or all workers of these groups, or the first of them.

        Args:
            done_is_enough: If True, don't wait for workers that have done their work and only go on serving.

        Returns:
            False if the time is up.

        Raises:
            NotRunningError: this is a forked child of the launching process.
        """
        self.lifetime.refuse_in_fork()
        enough = any if first else all

        def is_over() -> bool:
            if self.lifetime.done.is_set() or (labels is None and not first):
                return self.lifetime.done.is_set()
            workers = self.supervisor.workers.values()
            return enough(
                w.state is State.ENDED or (done_is_enough and w.current.is_done)
                for w in workers
                if labels is None or w.plan.group in labels
            )

        return self.lifetime.wait_until(is_over, timeout_s)

    def restart(self, worker: str, reason: str) -> None:
        """Restart a worker, and return when its next attempt has begun.

        Raises:
            KeyError: there is no such worker.
            NotRunningError: the program is ending, or this is a forked child of the launching process.
        """
        self.lifetime.refuse_in_fork()
        supervisor = self.supervisor
        state = self.supervisor.workers.get(worker)
        before = state.attempt if state is not None else 0
        self.request_restart(worker, reason)

        def is_over() -> bool:
            has_begun = supervisor.workers[worker].attempt > before
            return has_begun or supervisor.is_stopping or self.lifetime.done.is_set()

        self.lifetime.wait_until(is_over, None)
        if supervisor.workers[worker].attempt == before:
            raise NotRunningError(
                f"program {self._plan.program!r} ends; {worker} is not started again"
            )

    def request_restart(self, worker: str, reason: str) -> None:
        """Request a restart, as `restart` does, without waiting for it."""
        self.lifetime.refuse_in_fork()
        if worker not in self.supervisor.workers:
            names = ", ".join(self.supervisor.workers)
            raise KeyError(
                f"program {self._plan.program!r} has no worker {worker!r}; it has {names}"
            )
        self.inbox.put(RestartRequest(worker, reason))

    def _run(self) -> None:
        _log.info(
            "program %r starts: %d workers on %s, logs in %s",
            self._plan.program,
            len(self._plan.workers),
            self._plan.launch_type,
            self._directory.logs,
        )
        until_it_has_ended = contextlib.ExitStack()
        try:
            until_it_has_ended.enter_context(
                own_threads.watched(lambda text: self.inbox.put(OwnThreadDied(text)))
            )
            self._execute(self.supervisor.start_all(time.monotonic()))
            while not self.supervisor.is_over:
                wake_at = self.supervisor.wake_at() if self.inbox.empty() else None
                timeout_s = None if wake_at is None else max(0.0, wake_at - time.monotonic())
                try:
                    message = self.inbox.get(timeout=timeout_s)
                except queue.Empty:
                    commands = self.supervisor.tick(time.monotonic())
                else:
                    with self.lifetime.changed:
                        commands = self._decide(message)
                        commands += self.inquiries.observe()
                        # Many workers answer one request. Only the last answer wakes the threads that wait.
                        if not isinstance(message, EdgesCounted) or (
                            self.inquiries.is_answered(message)
                        ):
                            self.lifetime.changed.notify_all()
                    # Calls of this process may be waiting for the worker's server.
                    if isinstance(message, Ready):
                        plan = self.supervisor.workers[message.worker].plan
                        for endpoint in plan.endpoints.values():
                            call.wake(endpoint)
                self._execute(commands)
                if self.inbox.empty():
                    self._execute(self.supervisor.overdue(time.monotonic()))
        except BaseException as error:
            self.crash = error
            if not isinstance(error, BrokenLauncher):  # else the error has been printed
                traceback.print_exc()
        finally:
            until_it_has_ended.close()
            # `Running.start` may still add to `undo`. Whatever it added after the close would never be
            # undone.
            self.is_published.wait()
            with contextlib.suppress(Exception):
                history.write(self._directory.logs, self.history())
            if self._own is not None:
                self._undo.callback(self._own.close)
            with contextlib.suppress(Exception):
                self._undo.close()
            uptime_s = self.lifetime.uptime_s
            _log.info("program %r has ended after %.1f s", self._plan.program, uptime_s)
            self.lifetime.end()

    def _decide(self, message: Message) -> list[Decided]:
        """Return what to do about a message. The caller holds the lock."""
        now = time.monotonic()
        if isinstance(message, OwnThreadDied):
            raise BrokenLauncher(message.text)
        if isinstance(message, EndAwaited):
            return self.supervisor.await_end()
        if isinstance(message, Recording):
            self.inquiries.begin(message)
            return []
        if isinstance(message, SpansRecorded):
            self.inquiries.add(message)
            return []
        if isinstance(message, CountsRequest):
            return self.inquiries.ask(message)
        if isinstance(message, RestartRequest):
            return self.supervisor.restart(message.worker, message.reason, now)
        if isinstance(message, WorkerPlan):
            return self.supervisor.add(message, now)
        if isinstance(message, StopRequest):
            if message.note:
                self._output.note(message.note)
            if message.at_once:
                self.has_grace = False
                self._skips_grace = True
            return self.supervisor.stop(message.reason, now, message.at_once)
        if isinstance(message, WorkerNote):
            self._output.note(message.text, once=True)
            return []
        if isinstance(message, Debugged) and message.is_waiting:
            name = message.worker
            run_id = self._directory.run_id
            command = f"python -m launchpad attach {run_id} {name}"
            self._output.note(f"{name} {message.what}:\n{command}")
        if isinstance(message, Ended):
            end = message.outcome
            log = self._directory.log(end.worker, end.attempt)
            if not end.log_path and log.exists():  # there may have been no process to write one
                lines = last_lines(log, _KEPT_LINES) if end.is_failure or end.hung else ()
                end = replace(end, log_path=str(log), last_lines=lines)
            message = Ended(end)
        self._log_report(message)
        return self.supervisor.on(message, now)

    def _log_report(self, report: Event) -> None:
        """Log a worker's report, if it is about the worker's lifecycle."""
        match report:
            case Ready(worker=worker, attempt=attempt):
                pid = self.supervisor.workers[worker].current.pid
                _log.info("%s is ready (attempt %d, process %d)", worker, attempt, pid)
            case Debugged(worker=worker, what=what):
                _log.debug("%s: %s", worker, what or "the debugger has left")
            case Ended(outcome=ended):
                # A headline ends with a colon if the cause has more lines.
                _log.info("%s", ended.headline().rstrip(": "))

    def _execute(self, commands: list[Decided]) -> None:
        """Print the notes, and have workers execute the commands."""
        for command in commands:
            _log_command(command)
            if isinstance(command, PrintNote):
                self._output.note(command.text)
                continue
            if isinstance(command, AnnounceGone) and command.to:
                self.workers_of(command.to).execute(command)
                continue
            if isinstance(command, AnnounceGone):
                for workers in filter(None, (self.workers, self._own)):
                    workers.execute(command)
                continue
            if isinstance(command, StartWorker):
                self._output.follow(command.worker, command.attempt)
            if isinstance(command, KillWorker):
                if not command.at_once:
                    self._output.note(f"{command.worker} {command.why}; it is ended by force")
                if self._skips_grace:
                    command = replace(command, at_once=True)
            self.workers_of(command.worker).execute(command)


def _log_command(command: Decided) -> None:
    """Log the supervisor's decisions, except its notes, which are printed on the terminal."""
    match command:
        case StartWorker(worker=worker, attempt=attempt):
            _log.info("%s is started (attempt %d)", worker, attempt)
        case StopWorker(worker=worker):
            _log.debug("%s is asked to stop", worker)
        case KillWorker(worker=worker, why=why):
            _log.info("%s is killed: %s", worker, why)
