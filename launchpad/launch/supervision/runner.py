"""The one thread of a launch that owns its supervisor and sends its backend the commands.

    backend, script ── events, requests ──▶ inbox ──▶ Supervisor ── commands ──▶ backend
                                                           └─ states, failures ──▶ Running

It is no daemon: a script whose last line is `lp.launch(program)` runs until this thread is done.
"""

from __future__ import annotations

import contextlib
import itertools
import math
import os
import queue
import threading
import time
import traceback
from collections.abc import Callable, Collection
from dataclasses import replace
from typing import TYPE_CHECKING

from launchpad.courier import WorkerFailed, fork, own_threads
from launchpad.courier.client import retry
from launchpad.courier.deadlines import check_timeout
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
from launchpad.launch.supervision.recordings import Recording
from launchpad.launch.supervision.supervisor import Supervisor
from launchpad.launch.supervision.worker_state import Decided, PrintNote, State, WorkerState
from launchpad.runtime.commands import (
    AnnounceGone,
    KillWorker,
    StartWorker,
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

_KEPT_LINES = 200
"""Of a failed worker's log: enough for its traceback, and some lines before it."""


_TAKEN_S = 5.0
"""How long a script that adds a worker waits until the supervisor has it, at most."""

_SIGNAL_S = 0.2
"""After so long a wait is begun anew: a signal that comes while the handler of another one returns stays
pending, and does not interrupt the wait for a lock that follows. (CPython looks for signals before it.)"""


@dataclass(frozen=True)
class StopRequest:
    """The script wants the program to stop."""

    reason: str
    at_once: bool = False
    note: str = ""
    """For the terminal."""


@dataclass(frozen=True)
class RestartRequest:
    """The user wants a worker to begin anew."""

    worker: str
    reason: str


@dataclass(frozen=True)
class EndAwaited:
    """The script waits for the end of the program, for as long as it takes."""


@dataclass(frozen=True)
class CountsRequest:
    """The script wants to know what workers have counted of their calls."""

    number: int


@dataclass(frozen=True)
class OwnThreadDied:
    """A thread of launchpad's in this process has died: what it did for the program is no longer done."""

    text: str


class BrokenLauncher(Exception):
    """The launcher cannot go on, and says why."""


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
"""What is reported or requested; a plan is that of a worker which the script adds."""

Inbox = queue.SimpleQueue[Message]


class Runner:
    """Runs one launch from its first start to its last end.

    Args:
        workers: The workers of the backend; they report to the inbox.
        undo: Closed when the program has ended and `is_published`.

    Attributes:
        thread: Not started yet.
        is_published: To be set when nothing is added to `undo` any more.
        done: Set when the program has ended and nothing of it is left.
        crash: What went wrong in the thread, if anything did.
        has_grace: Whether workers get time to stop by themselves.
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
        self._own: ScriptThreads | None = None  # made when there is one
        name = f"launchpad-{plan.program}"
        self.thread = threading.Thread(target=self._run, name=name, daemon=False)
        self.is_published, self.done = threading.Event(), threading.Event()
        self.crash: BaseException | None = None
        self.has_grace = grace_s > 0
        self._skips_grace = False
        self.inbox = inbox
        self._plan, self._directory, self._output, self._undo = plan, run, output, undo
        self._changed = fork.free_in_child(threading.Condition())
        self._requests = itertools.count(1)
        self._asked: dict[int, set[str] | None] = {}
        """Request for counts, while one waits → workers that have not answered; None: it is not sent yet."""
        self._began, self._ended = time.monotonic(), 0.0
        self._recordings: list[Recording] = []
        self._pid = os.getpid()

    @property
    def is_here(self) -> bool:
        """False in a forked child of the launching process, where its thread does not run."""
        return os.getpid() == self._pid

    @property
    def uptime_s(self) -> float:
        """How long the program runs, or has run."""
        return (self._ended or time.monotonic()) - self._began

    def states(self) -> list[WorkerState]:
        with self._changed:
            return list(self.supervisor.workers.values())

    def history(self) -> RunHistory:
        """What has become of the run so far."""
        past_s = time.time() - time.monotonic()
        with self._changed:
            workers, failures = (
                list(self.supervisor.workers.values()),
                list(self.supervisor.failures),
            )
        attempts = (each.moved(past_s) for worker in workers for each in worker.attempts)
        program, now = self._plan.program, time.time()
        if not self.supervisor.is_over:
            return RunHistory(program, tuple(attempts), tuple(failures))
        edges = look.edges(workers, (), self.uptime_s)
        return RunHistory(program, tuple(attempts), tuple(failures), now, edges)

    def failure_of(self, worker: str) -> Exception | None:
        """The error of a call to a worker that has ended for good; None: it has not."""
        with self._changed:  # so that a worker that has ended, and will be restarted, is not seen
            state = self.supervisor.workers[worker]
            if state.state is not State.ENDED or state.outcome is None:
                return None
            return WorkerFailed(state.outcome.headline(), server=worker)

    def workers_of(self, worker: str) -> Workers:
        """What has started a worker: the backend, or for a thread of the script this process."""
        own = self._own
        return own if own is not None and worker in own else self.workers

    def add_thread(self, name: str, function: Callable[[], object]) -> None:
        """Adds a worker that is a thread of the script. ValueError: the name is taken."""
        self._refuse_in_fork()
        from launchpad.launch.worker.worker_threads import ScriptThreads

        with self._changed:
            if self._own is None:
                places = self.workers.places()
                self._own = ScriptThreads(self._plan, self._directory, self.inbox.put, places)
            if name in self.supervisor.workers or name in self._own:
                raise ValueError(f"program {self._plan.program!r} has a worker {name!r} already")
            self.inbox.put(self._own.add(name, function))
            # What the caller asks of it next finds it, unless the program stops meanwhile.
            supervisor = self.supervisor
            self._changed.wait_for(
                lambda: name in supervisor.workers or supervisor.is_stopping or self.done.is_set(),
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
        """Until the program has ended, or all workers of these groups, or the first of them.

        `done_is_enough`: it does not wait for those that only serve on. False when the time is up.
        NotRunningError: this is a forked child of the launching process.
        """
        self._refuse_in_fork()
        enough = any if first else all

        def is_over() -> bool:
            if self.done.is_set() or (labels is None and not first):
                return self.done.is_set()
            workers = self.supervisor.workers.values()
            return enough(
                w.state is State.ENDED or (done_is_enough and w.current.is_done)
                for w in workers
                if labels is None or w.plan.group in labels
            )

        return self._wait_until(is_over, timeout_s)

    def restart(self, worker: str, reason: str) -> None:
        """Restarts a worker, and returns when its next attempt has begun. KeyError: there is none.

        NotRunningError: the program ends meanwhile, or this is a forked child of the launching process.
        """
        self._refuse_in_fork()
        supervisor, known = self.supervisor, self.supervisor.workers.get(worker)
        before = known.attempt if known is not None else 0
        self.request_restart(worker, reason)

        def is_over() -> bool:
            has_begun = supervisor.workers[worker].attempt > before
            return has_begun or supervisor.is_stopping or self.done.is_set()

        self._wait_until(is_over, None)
        if supervisor.workers[worker].attempt == before:
            raise NotRunningError(
                f"program {self._plan.program!r} ends; {worker} is not started again"
            )

    def request_restart(self, worker: str, reason: str) -> None:
        """The same, without waiting."""
        self._refuse_in_fork()
        if worker not in self.supervisor.workers:
            known = ", ".join(self.supervisor.workers)
            raise KeyError(
                f"program {self._plan.program!r} has no worker {worker!r}; it has {known}"
            )
        self.inbox.put(RestartRequest(worker, reason))

    def _refuse_in_fork(self) -> None:
        """NotRunningError in a forked child."""
        if not self.is_here:
            raise NotRunningError(
                f"this process was forked from process {self._pid}, which launched program"
                f" {self._plan.program!r}: only there it can be waited for, asked or stopped. From here call"
                f" os.kill({self._pid}, signal.SIGTERM), or `python -m launchpad stop {self._pid}`."
            )

    def _wait_until(self, is_over: Callable[[], bool], timeout_s: float | None) -> bool:
        """Waits, and can be interrupted by signals; False when the time is up."""
        check_timeout(timeout_s)
        deadline = math.inf if timeout_s is None else time.monotonic() + timeout_s
        while True:
            left_s = deadline - time.monotonic()
            with self._changed:
                if self._changed.wait_for(is_over, min(left_s, _SIGNAL_S)):
                    return True
            if left_s <= _SIGNAL_S:
                return False

    def request_counts(self, timeout_s: float) -> tuple[list[WorkerState], set[str]]:
        """The workers, when all that run have reported what they have counted; or the time is up.

        And the names of those that have not reported it. NotRunningError in a forked child.
        """
        self._refuse_in_fork()
        number, workers = next(self._requests), self.supervisor.workers

        def silent() -> set[str]:
            return {w.name for w in workers.values() if not w.has_answered(number)}

        def is_over() -> bool:
            return self.done.is_set() or (self._asked[number] is not None and not silent())

        with self._changed:
            self._asked[number] = None
            self.inbox.put(CountsRequest(number))
            try:
                self._changed.wait_for(is_over, timeout_s)
            finally:
                del self._asked[number]
            return list(workers.values()), silent()

    def record(self, seconds: float, timeout_s: float) -> Recording:
        """Has all workers record what they do for so long, and returns when all have reported it.

        Args:
            timeout_s: How long they may take to report, when the time is over.

        Raises:
            NotRunningError: this is a forked child of the launching process.
        """
        self._refuse_in_fork()
        recording = Recording(next(self._requests), seconds)
        self.inbox.put(recording)
        deadline = recording.until_s + timeout_s
        with self._changed:
            try:
                # Nothing is reported at the moment when the time is over and there is nothing to report.
                while not (self.done.is_set() or recording.is_complete()):
                    now = time.monotonic()
                    if now >= deadline:
                        break
                    end = recording.until_s if now < recording.until_s else deadline
                    self._changed.wait(end - now)
            finally:
                self._recordings = [each for each in self._recordings if each is not recording]
        return recording

    def _run(self) -> None:
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
                    with self._changed:
                        commands = self._decide(message)
                        for recording in self._recordings:
                            workers, now = self.supervisor.workers.values(), time.monotonic()
                            commands += recording.observe(workers, now)
                        if self._is_of_interest(message):
                            self._changed.notify_all()
                    if isinstance(message, Ready):  # calls of this process wait for it
                        ready = self.supervisor.workers[message.worker].plan
                        for endpoint in ready.endpoints.values():
                            retry.wake(endpoint)
                self._execute(commands)
                if self.inbox.empty():
                    self._execute(self.supervisor.overdue(time.monotonic()))
        except BaseException as error:
            self.crash = error
            if not isinstance(error, BrokenLauncher):  # else it has been printed
                traceback.print_exc()
        finally:
            until_it_has_ended.close()
            self.is_published.wait()
            with contextlib.suppress(Exception):
                history.write(self._directory.logs, self.history())
            if self._own is not None:
                self._undo.callback(self._own.close)
            with contextlib.suppress(Exception):
                self._undo.close()
            with self._changed:
                self._ended = time.monotonic()
                self.done.set()
                self._changed.notify_all()

    def _is_of_interest(self, message: Message) -> bool:
        """Whether to wake those that wait, with the lock held: of a hundred answers only for the last one."""
        if not isinstance(message, EdgesCounted):
            return True
        workers, is_complete = self.supervisor.workers, False
        for number, names in self._asked.items():
            if names is not None and workers[message.worker].has_answered(number):
                names.discard(message.worker)
                # Of those that are left some may have ended.
                is_complete |= all(workers[name].has_answered(number) for name in names)
        return is_complete

    def _decide(self, message: Message) -> list[Decided]:
        """What to do about a message, with the lock held."""
        now = time.monotonic()
        if isinstance(message, OwnThreadDied):
            raise BrokenLauncher(message.text)
        if isinstance(message, EndAwaited):
            return self.supervisor.await_end()
        if isinstance(message, Recording):
            self._recordings.append(message)
            return []
        if isinstance(message, SpansRecorded):
            for recording in self._recordings:
                recording.add(message)
            return []
        if isinstance(message, CountsRequest):
            commands = self.supervisor.request_counts(message.number)
            if message.number in self._asked:  # else the asker's time is up
                self._asked[message.number] = {command.worker for command in commands}
            return [*commands]
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
            name, run_id = message.worker, self._directory.run_id
            command = f"python -m launchpad attach {run_id} {name}"
            self._output.note(f"{name} {message.what}:\n{command}")
        if isinstance(message, Ended):
            ended = message.outcome
            log = self._directory.log(ended.worker, ended.attempt)
            if not ended.log_path and log.exists():  # it may have had no process that wrote one
                lines = last_lines(log, _KEPT_LINES) if ended.is_failure or ended.hung else ()
                ended = replace(ended, log_path=str(log), last_lines=lines)
            message = Ended(ended)
        return self.supervisor.on(message, now)

    def _execute(self, commands: list[Decided]) -> None:
        """Print what is to be printed, and have workers execute the commands for them."""
        for command in commands:
            if isinstance(command, PrintNote):
                self._output.note(command.text)
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
