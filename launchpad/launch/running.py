"""Running: a launched program, what `lp.launch` returns.

One thread per launch owns the supervisor: reports and requests come to it through a queue, and it is the
only one that commands the backend. It is no daemon: a script whose last line is `lp.launch(program)`
runs until this thread is done.
"""

from __future__ import annotations

import contextlib
import dataclasses
import queue
import sys
import threading
import time
import traceback
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any

from launchpad import context, outcome
from launchpad.courier import Client, WorkerFailed, keyring
from launchpad.errors import LaunchError, NotRunningError, ProgramFailed
from launchpad.launch.backend import Backend, Ended, Report, Workers
from launchpad.launch.output import Output
from launchpad.launch.own_threads import OwnThreads
from launchpad.launch.plan import LaunchPlan, WorkerPlan
from launchpad.launch.run_directory import RunDirectory, last_lines
from launchpad.launch.supervisor import (
    ENDED,
    RUNNING,
    STARTING,
    STOPPING,
    Ask,
    Command,
    Kill,
    Start,
    Supervisor,
    TellGone,
)
from launchpad.outcome import Outcome

_KEPT_LINES = 200
"""Of a failed worker's log: enough for its traceback, and some lines before it."""

_ALIVE = (STARTING, RUNNING, STOPPING)


@dataclasses.dataclass(frozen=True)
class WorkerStatus:
    """A row of `Running.status()`. `state` is pending, starting, running, stopping, or how it ended."""

    worker: str
    label: str
    state: str
    attempt: int
    cause: str
    log_path: str


@dataclasses.dataclass(frozen=True)
class _StopAsked:
    reason: str
    at_once: bool = False


@dataclasses.dataclass(frozen=True)
class _Add:
    plan: WorkerPlan


class Running:
    """A program that was launched: wait for it, stop it, look at it, call into it.

    Example:
      with lp.launch(program, "local_mp") as running:     # stopped at the end of the block
        print(running.client("learner").get_variables())

    All methods may be called from any thread. Leaving the `with` block stops the program, and raises
    ProgramFailed if it had failed.

    Attributes:
      plan: What was launched.
      run_id: The name of this run; its logs are in a directory of that name.
    """

    def __init__(
        self, plan: LaunchPlan, backend: Backend, run: RunDirectory, output: Output, grace_s: float
    ):
        self.plan, self.run_id = plan, run.run_id
        self.is_test = backend.is_test
        self.is_reported = False
        self._run, self._output = run, output
        self._inbox: queue.SimpleQueue[Report | _StopAsked | _Add] = queue.SimpleQueue()
        self._supervisor = Supervisor(plan, grace_s)
        self._done = threading.Event()
        self._changed = threading.Condition()
        self._crash: BaseException | None = None
        self._published = {uid: plan.endpoints[name] for uid, name in plan.uids.items()}
        self._own = OwnThreads(plan, self._inbox.put)
        self._workers: Workers = backend.start(plan, run, self._inbox.put)
        self._thread = threading.Thread(
            target=self._supervise, name=f"launchpad-{plan.program}", daemon=False
        )

    def begin(self) -> None:
        """Starts the workers. Called once, by launch."""
        context.publish(self._published)
        self._output.start()
        self._thread.start()

    @property
    def log_directory(self) -> Path:
        """Where the logs of this run are."""
        return self._run.logs

    def wait(
        self,
        timeout_s: float | None = None,
        *,
        labels: Collection[str] | None = None,
        raise_error: bool = True,
        return_on_first_completed: bool = False,
    ) -> None:
        """Blocks until the program has ended.

        Args:
          timeout_s: How long at most; the program goes on when it is over.
          labels: Wait only for the workers of these groups.
          raise_error: Whether a failure is raised here.
          return_on_first_completed: Return when the first of them has ended, not the last.

        Raises:
          ProgramFailed: a worker failed; its text is the whole report.
          TimeoutError: the time was up before.
        """
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        try:
            in_time = self._wait(deadline, labels, return_on_first_completed)
        except KeyboardInterrupt:
            self._stop_for_ctrl_c()
            raise
        if self._done.is_set() and raise_error:
            self._raise_failure()
        if not in_time:
            alive = [s.worker for s in self.status() if s.state in _ALIVE]
            raise TimeoutError(
                f"program {self.plan.program!r} still runs after {timeout_s} s: {', '.join(alive)}"
            )

    def stop(
        self, reason: str = "stopped by the launching script", *, at_once: bool = False
    ) -> None:
        """Stops the program and blocks until it has ended. A program that has ended is left alone.

        Args:
          reason: Why, for the record.
          at_once: Workers get no time to stop by themselves; also if a stop with time is under way.
        """
        self._inbox.put(_StopAsked(reason, at_once))
        self._done.wait()

    def stop_and_wait(self) -> None:
        """Stops the program, then raises ProgramFailed if it had failed."""
        self.stop()
        self.wait()

    @property
    def is_done(self) -> bool:
        """Whether the program has ended, well or badly."""
        return self._done.is_set()

    def failure(self) -> ProgramFailed | None:
        """The failure that ended the program, if one has; not raised."""
        failures = list(self._supervisor.failures)
        if not failures:
            return None
        first = outcome.first_cause(failures)
        others = tuple(o for o in failures if o is not first)
        return ProgramFailed(self.plan.program, first, others)

    def status(self) -> list[WorkerStatus]:
        """A row for each worker."""
        return [
            WorkerStatus(
                worker=name,
                label=w.plan.group,
                state=w.outcome.kind if w.outcome is not None else w.state,
                attempt=w.attempt,
                cause=w.outcome.cause if w.outcome is not None else "",
                log_path=str(self._run.log(name)),
            )
            for name, w in self._supervisor.workers.items()
        ]

    def logs(self, label: str) -> str:
        """What the workers of a group, or one worker, have printed so far.

        Raises:
          KeyError: there is no such group or worker.
        """
        names = [w.name for w in self.plan.workers if label in (w.group, w.name)]
        if not names:
            raise KeyError(
                f"program {self.plan.program!r} has no group {label!r}; it has {list(self.plan.groups)}"
            )
        return "".join(_text(self._run.log(name)) for name in names)

    def thread_worker(self, name: str, function: Callable[[], object]) -> None:
        """Runs a function in a thread of this process, as one more worker of the program.

        The program does not end before it has ended, and fails if it raises. In it `lp.stop()` and
        `lp.wait_for_stop()` mean this program. A program that is ending takes no more workers.

        Raises:
          ValueError: the name is taken.
        """
        if name in self._supervisor.workers or name in self._own:
            raise ValueError(f"program {self.plan.program!r} has a worker {name!r} already")
        self._inbox.put(_Add(self._own.add(name, function)))

    def client(self, label: str, index: int = 0) -> Client[Any]:
        """A client of a CourierNode, for the launching script.

        Args:
          label: The group.
          index: Which replica.

        Raises:
          KeyError: no such group or replica, or it serves nobody.
          NotRunningError: the program has ended.
        """
        name = f"{label}-{index}"
        if label not in self.plan.groups:
            raise KeyError(
                f"program {self.plan.program!r} has no group {label!r}; it has {list(self.plan.groups)}"
            )
        if self._done.is_set():
            raise NotRunningError(
                f"program {self.plan.program!r} has ended; nobody answers for {name} any more"
            )
        for address, endpoint in self.plan.endpoints.items():
            if address in (f"{name}/courier", f"{name}/0.courier"):
                return Client(endpoint, name=name, verdict=lambda: self._verdict_on(name))
        raise KeyError(f"{name} serves nobody; those that do: {sorted(self.plan.endpoints)}")

    def __enter__(self) -> Running:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, tb: object
    ) -> None:
        self.stop()
        if error is None:
            self.wait()

    def __repr__(self) -> str:
        state = "ended" if self._done.is_set() else "running"
        return f"<Running {self.plan.program!r} on {self.plan.launch_type}, {state}>"

    def _stop_for_ctrl_c(self) -> None:
        """Asks the workers; a second Ctrl-C meanwhile ends them by force."""
        try:
            self._output.note("stopping … (Ctrl-C again: by force)")
            self.stop("interrupted by Ctrl-C")
        except KeyboardInterrupt:
            self.stop("interrupted twice by Ctrl-C", at_once=True)

    def _wait(self, deadline: float | None, labels: Collection[str] | None, first: bool) -> bool:
        if labels is None and not first:
            left = None if deadline is None else max(0.0, deadline - time.monotonic())
            return self._done.wait(left)
        with self._changed:
            left = None if deadline is None else max(0.0, deadline - time.monotonic())
            return self._changed.wait_for(lambda: self._have_ended(labels, first), left)

    def _have_ended(self, labels: Collection[str] | None, first: bool) -> bool:
        chosen = [
            w for w in self._supervisor.workers.values() if labels is None or w.plan.group in labels
        ]
        ended = [w.state == ENDED for w in chosen]
        return self._done.is_set() or (any(ended) if first else all(ended))

    def _raise_failure(self) -> None:
        self.is_reported = True
        failed = self.failure()
        if failed is not None:
            raise failed
        if self._crash is not None:
            raise LaunchError(
                f"the supervisor of {self.plan.program!r} crashed: {self._crash!r}"
            ) from self._crash

    def _verdict_on(self, worker: str) -> Exception | None:
        """What a waiting client of the launching script asks: has that worker ended for good?"""
        watched = self._supervisor.workers[worker]
        if watched.state != ENDED or watched.outcome is None:
            return None
        return WorkerFailed(watched.outcome.headline(), server=worker)

    # The supervising thread.

    def _supervise(self) -> None:
        try:
            self._execute(self._supervisor.begin())
            while not self._supervisor.is_over:
                self._execute(self._next())
        except BaseException as error:
            self._crash = error
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

    def _decide(self, message: Report | _StopAsked | _Add) -> list[Command]:
        now = time.monotonic()
        if isinstance(message, _Add):
            return self._supervisor.add(message.plan)
        if isinstance(message, _StopAsked):
            return self._supervisor.stop(message.reason, now, message.at_once)
        if isinstance(message, Ended):
            message = Ended(self._with_log(message.outcome))
            if message.outcome.is_failure:
                self._output.note(message.outcome.headline())
        return self._supervisor.on(message, now)

    def _with_log(self, ended: Outcome) -> Outcome:
        log = self._run.log(ended.worker)
        lines = last_lines(log, _KEPT_LINES) if ended.is_failure else ()
        return dataclasses.replace(ended, log_path=str(log), last_lines=lines)

    def _execute(self, commands: list[Command]) -> None:
        actions: dict[type, Callable[..., None]] = {
            Start: lambda c: self._home_of(c.worker).start(c.worker, c.attempt),
            Ask: lambda c: self._home_of(c.worker).ask(c.worker),
            Kill: self._kill,
            TellGone: self._tell_gone,
        }
        for command in commands:
            actions[type(command)](command)

    def _kill(self, command: Kill) -> None:
        self._output.note(f"{command.worker} did not stop when asked; it is ended by force")
        self._home_of(command.worker).kill(command.worker)

    def _tell_gone(self, command: TellGone) -> None:
        for home in (self._workers, self._own):
            home.tell_gone(command.worker, command.why)

    def _home_of(self, worker: str) -> Workers:
        """Who has started it: the backend, or this process for a thread of its own."""
        return self._own if worker in self._own else self._workers

    def _tear_down(self) -> None:
        for home in (self._own, self._workers):
            with contextlib.suppress(Exception):
                home.close()
        with contextlib.suppress(Exception):
            self._output.close()
        context.retract(self._published)
        keyring.remove(self._run.scope)
        self._run.remove()
        with self._changed:
            self._done.set()
            self._changed.notify_all()


def _text(path: Path) -> str:
    try:
        return path.read_text(errors="replace")
    except OSError:
        return ""


def print_failure(failure: ProgramFailed) -> None:
    """The report, where a person looks last."""
    print(failure, file=sys.stderr, flush=True)
