"""Supervising: the one thread of a launch that owns its supervisor and commands its backend.

    backend, script ── reports, requests ──▶ inbox ──▶ Supervisor ── commands ──▶ backend
                                                           └─ status, failures ──▶ Running

It is no daemon: a script whose last line is `lp.launch(program)` runs until this thread is done.
"""

from __future__ import annotations

import contextlib
import dataclasses
import queue
import threading
import time
import traceback
from collections.abc import Callable, Collection

from launchpad import context, outcome
from launchpad.context import Place
from launchpad.courier import WorkerFailed, keyring
from launchpad.errors import LaunchError, ProgramFailed
from launchpad.launch import record
from launchpad.launch.backend import Backend, Ended, Noted, Report, Workers
from launchpad.launch.control import Control
from launchpad.launch.logs.files import last_lines
from launchpad.launch.output import Output
from launchpad.launch.own_threads import OwnThreads
from launchpad.launch.plan import LaunchPlan, WorkerPlan
from launchpad.launch.progress import Progress
from launchpad.launch.run_directory import RunDirectory
from launchpad.launch.status import WorkerStatus, status_of
from launchpad.launch.supervisor import Ask, Command, Kill, Note, Start, Supervisor, TellGone
from launchpad.launch.watched import State, Watched
from launchpad.outcome import Outcome

_KEPT_LINES = 200
"""Of a failed worker's log: enough for its traceback, and some lines before it."""


@dataclasses.dataclass(frozen=True)
class StopAsked:
    """The script wants the program to stop."""

    reason: str
    at_once: bool = False
    note: str = ""
    """For the terminal."""


@dataclasses.dataclass(frozen=True)
class Add:
    """The script adds a worker."""

    plan: WorkerPlan


class Supervising:
    """Runs one launch from its first start to its last end.

    Attributes:
      done: Set when the program has ended and nothing of it is left.
      crash: What went wrong in here, if anything did.
    """

    def __init__(
        self, plan: LaunchPlan, backend: Backend, run: RunDirectory, output: Output, grace_s: float
    ):
        self.done = threading.Event()
        self.crash: BaseException | None = None
        self._plan, self._run, self._output = plan, run, output
        self._has_patience = grace_s > 0
        self._inbox: queue.SimpleQueue[Report | StopAsked | Add] = queue.SimpleQueue()
        self._changed = threading.Condition()
        self._supervisor = Supervisor(plan, grace_s)
        output.show(Progress(self.workers))
        self._workers: Workers = backend.start(plan, run, self._inbox.put)
        self._places = self._workers.places()
        self._published = {uid: self.place(name) for uid, name in plan.uids.items()}
        self._own = OwnThreads(plan, run, self._inbox.put, self._places)
        self._control = self._make_room()
        name = f"launchpad-{plan.program}"
        self._thread = threading.Thread(target=self._supervise, name=name, daemon=False)

    def begin(self) -> None:
        """Starts the workers. When that is not possible everything is taken down again."""
        context.publish(self._published)
        try:
            self._output.start()
            self._thread.start()
        except RuntimeError as error:
            self._tear_down()
            raise LaunchError(f"no thread could be started: {error}") from error

    def put(self, request: StopAsked | Add) -> None:
        """Lets the thread know what the script wants."""
        self._inbox.put(request)

    def note(self, text: str) -> None:
        """A line for the terminal."""
        self._output.note(text)

    def add(self, name: str, function: Callable[[], object]) -> None:
        """One more worker, a thread of this process; ValueError if the name is taken."""
        if name in self._supervisor.workers or name in self._own:
            raise ValueError(f"program {self._plan.program!r} has a worker {name!r} already")
        self.put(Add(self._own.add(name, function)))

    def workers(self) -> list[Watched]:
        """What is known of each worker now."""
        with self._changed:
            return list(self._supervisor.workers.values())

    def status(self) -> list[WorkerStatus]:
        """A row for each worker."""
        return [status_of(worker, self._run) for worker in self.workers()]

    def stacks(self, worker: str) -> str:
        """What the threads of a worker are doing; may take a moment."""
        return self._home_of(worker).stacks(worker)

    def failure(self) -> ProgramFailed | LaunchError | None:
        """What ended the program badly, if anything has."""
        failures = list(self._supervisor.failures)
        if failures:
            first = outcome.first_cause(failures)
            others = tuple(o for o in failures if o is not first)
            return ProgramFailed(self._plan.program, first, others)
        if self.crash is not None:
            text = f"the supervisor of {self._plan.program!r} crashed: {self.crash!r}"
            return LaunchError(text)
        return None

    def exit_status(self) -> int:
        """What a script exits with whose program has ended so."""
        failure = self.failure()
        if isinstance(failure, ProgramFailed):
            return outcome.exit_status(failure.outcome)
        if failure is not None:
            return outcome.NOT_THERE
        ended = [w.outcome for w in self._supervisor.workers.values() if w.outcome is not None]
        hung = self._has_patience and any(o.hung for o in ended)
        return outcome.HUNG if hung else 0

    def wait_for(
        self, labels: Collection[str] | None, first: bool, timeout_s: float | None
    ) -> bool:
        """Until all workers of these groups have ended, or the first; False when the time is up."""
        if labels is None and not first:
            return self.done.wait(timeout_s)
        with self._changed:
            return self._changed.wait_for(lambda: self._have_ended(labels, first), timeout_s)

    def verdict_on(self, worker: str) -> Exception | None:
        """What a waiting client of the launching script asks: has that worker ended for good?"""
        with self._changed:  # one that has ended, and is about to be restarted, is not to be seen
            watched = self._supervisor.workers[worker]
            if watched.state is not State.ENDED or watched.outcome is None:
                return None
            return WorkerFailed(watched.outcome.headline(), server=worker)

    def place(self, address: str) -> Place:
        """Where an address is, for this process."""
        places = self._plan.endpoints if self._places is None else self._places
        worker = address.partition("/")[0]
        return Place(
            where=lambda: places.get(address, ""),
            moves=self._places is not None,
            worker=worker,
            verdict=lambda: self.verdict_on(worker),
        )

    def make_fail(self, worker: str, why: str) -> str:
        """For tests: makes a worker fail that is no process of this host; how."""
        return self._home_of(worker).crash(worker, why)

    def _make_room(self) -> Control | None:
        """The runtime directory and what is in it; made when there is a backend that can clear it up."""
        try:
            self._run.make_runtime()
        except OSError as error:
            self._workers.close()
            raise LaunchError(f"no directory for sockets: {error}") from error
        record.write(self._run, self._plan)
        try:
            return Control(
                self._run.runtime,
                status=self.status,
                stop=self._stop_from_outside,
                stacks=self.stacks,
            )
        except (OSError, RuntimeError) as error:  # RuntimeError: there can be no new thread
            self.note(f"`python -m launchpad` cannot reach this program: {error}")
            return None

    def _stop_from_outside(self, at_once: bool) -> None:
        self.put(StopAsked("stopped by `python -m launchpad stop`", at_once, "stopping, as asked"))

    def _have_ended(self, labels: Collection[str] | None, first: bool) -> bool:
        workers = self._supervisor.workers.values()
        ended = [
            w.state is State.ENDED for w in workers if labels is None or w.plan.group in labels
        ]
        return self.done.is_set() or (any(ended) if first else all(ended))

    # From here on: the thread.

    def _supervise(self) -> None:
        try:
            self._execute(self._supervisor.begin(time.monotonic()))
            while not self._supervisor.is_over:
                self._execute(self._next())
        except BaseException as error:
            self.crash = error
            traceback.print_exc()
        finally:
            self._tear_down()

    def _next(self) -> list[Command]:
        """Waits for a report or until something is due, and asks what to do about it."""
        wake_at = self._supervisor.wake_at()
        timeout = None if wake_at is None else max(0.0, wake_at - time.monotonic())
        try:
            message = self._inbox.get(timeout=timeout)
        except queue.Empty:
            return self._supervisor.tick(time.monotonic())
        with self._changed:
            commands = self._decide(message)
            self._changed.notify_all()
        return commands

    def _decide(self, message: Report | StopAsked | Add) -> list[Command]:
        now = time.monotonic()
        if isinstance(message, Add):
            return self._supervisor.add(message.plan, now)
        if isinstance(message, StopAsked):
            if message.note:
                self.note(message.note)
            if message.at_once:
                self._has_patience = False
                self._workers.hurry()
            return self._supervisor.stop(message.reason, now, message.at_once)
        if isinstance(message, Noted):
            self._output.note_once(message.text)
            return []
        if isinstance(message, Ended):
            message = Ended(self._with_log(message.outcome))
        return self._supervisor.on(message, now)

    def _with_log(self, ended: Outcome) -> Outcome:
        log = self._run.log(ended.worker, ended.attempt)
        lines = last_lines(log, _KEPT_LINES) if ended.is_failure or ended.hung else ()
        return dataclasses.replace(ended, log_path=str(log), last_lines=lines)

    def _execute(self, commands: list[Command]) -> None:
        actions: dict[type, Callable[..., None]] = {
            Start: self._start,
            Ask: lambda c: self._home_of(c.worker).ask(c.worker, restarts=c.restarts),
            Kill: self._kill,
            TellGone: self._tell_gone,
            Note: lambda c: self.note(c.text),
        }
        for command in commands:
            actions[type(command)](command)

    def _start(self, command: Start) -> None:
        self._output.follow(command.worker, command.attempt)
        self._home_of(command.worker).start(command.worker, command.attempt)

    def _kill(self, command: Kill) -> None:
        self.note(f"{command.worker} {command.why}; it is ended by force")
        self._home_of(command.worker).kill(command.worker)

    def _tell_gone(self, command: TellGone) -> None:
        for home in (self._workers, self._own):
            home.tell_gone(command.worker, command.why)

    def _home_of(self, worker: str) -> Workers:
        """Who has started it: the backend, or this process for a thread of its own."""
        return self._own if worker in self._own else self._workers

    def _tear_down(self) -> None:
        parts = (self._control, self._own, self._workers, self._output)
        for part in parts:
            with contextlib.suppress(Exception):
                if part is not None:
                    part.close()
        context.retract(self._published)
        keyring.remove(self._run.scope)
        self._run.remove()
        with self._changed:
            self.done.set()
            self._changed.notify_all()
