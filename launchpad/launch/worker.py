"""Worker: one attempt at one executable, the same in every backend.

    import ──▶ init ──▶ run ──▶ stop ──▶ outcome
    unpickle   construct, serve   run() or wait   close

`main` runs in the worker's own thread, which in a process is the main one. `ask_to_stop` comes from another
thread. A run() that never asked about stopping is interrupted: `Stopped` is raised in it, once.
"""

from __future__ import annotations

import contextlib
import os
import socket
import sys
import traceback
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Any

import launchpad.stopping  # noqa: F401  so that user code which is to stop finds it imported
from launchpad import courier, outcome
from launchpad.context import RunContext
from launchpad.errors import DoNotRestart, Stopped
from launchpad.executable import Executable
from launchpad.launch import flag_values, payload
from launchpad.launch.backend import Bound, Done, Ready, Report, StopRequested, Waiting
from launchpad.launch.plan import WorkerPlan
from launchpad.outcome import Outcome


class Worker:
    """Runs one executable and says how it ended.

    Args:
      plan: What to run.
      context: Who it is; already current in the thread that calls `main`.
      report: Where Ready goes.
      interrupt: Makes `Stopped` be raised in the thread that is in `main`.
      on_phase: Told when it enters `init`, or `import` again; Ready tells the rest.
    """

    def __init__(
        self,
        plan: WorkerPlan,
        context: RunContext,
        report: Callable[[Report], None],
        interrupt: Callable[[], None],
        on_phase: Callable[[str], None] = lambda phase: None,
    ) -> None:
        self._plan, self._context = plan, context
        self._report, self._on_phase = report, on_phase
        self._restarts = False
        self._crash = ""
        self._executable: Executable | None = None
        context.interruption.raise_in_thread = interrupt

    def main(self) -> Outcome:
        """The worker's life. Raises nothing: whatever happens becomes the outcome."""
        try:
            self._executable = self._import()
            ended = self._guarded(self._executable)
        except BaseException as error:
            ended = self._outcome_of(error)
        ended = self._closed(self._executable, ended)
        return self._ended(outcome.FAILED, self._crash) if self._crash else ended

    def abandon(self) -> None:
        """Interrupts it and closes what it serves, from another thread: `main` does not return."""
        self._context.stop_event.set()
        self._context.interruption.ask()
        with contextlib.suppress(Exception):
            if self._executable is not None:
                self._executable.abandon()
                self._executable.close()

    def crash(self, why: str) -> None:
        """Interrupts it, from another thread, and makes its end a failure, however it takes it."""
        self._crash = why
        if self._executable is not None:
            self._executable.abandon()  # first: who calls it must not hear that it is being stopped
        self._context.ask_to_stop()
        self._context.interruption.ask()

    def ask_to_stop(self, restarts: bool = False) -> None:
        """Sets the stop event, calls the stop handlers, and interrupts a run() that never asked.

        `restarts`: it will be started again, so what it has built may save itself before it is closed.
        """
        self._restarts = restarts
        self._context.ask_to_stop()
        if not self._context.heeds_stop:
            self._context.interruption.ask()

    def _import(self) -> Executable:
        try:
            return payload.load(self._plan.payload, self._building)
        except payload.BuildFailed as failed:
            error = failed.error
        raise error

    @contextlib.contextmanager
    def _building(self) -> Iterator[None]:
        """A Deferred is built in here: a constructor that runs early, and is interrupted like one."""
        self._enter("init")
        with self._context.interruption.allowed():
            yield
        self._enter("import")

    def _enter(self, phase: str) -> None:
        self._context.phase = phase
        self._on_phase(phase)

    def _guarded(self, executable: Executable) -> Outcome:
        """Opens and runs; interrupted only in here."""
        try:
            with self._context.interruption.allowed():
                self._open_and_run(executable)
        except Stopped:
            return self._ended(outcome.STOPPED, "interrupted by the program's stop")
        kind = outcome.STOPPED if self._context.stop_event.is_set() else outcome.SUCCEEDED
        return self._ended(kind, "")

    def _open_and_run(self, executable: Executable) -> None:
        self._enter("init")
        flag_values.refresh()
        run = executable.open()
        self._context.phase = "run"
        self._report(Ready(self._plan.name, self._context.attempt, run is not None))
        if run is not None:
            run()
        else:
            self._context.heeds_stop = True
            self._context.stop_event.wait()

    def _closed(self, executable: Executable | None, ended: Outcome) -> Outcome:
        """The outcome, after what was opened is closed; a failure to close counts unless one came before."""
        self._context.ask_to_stop()  # threads that the worker leaves behind can see it
        try:
            if executable is not None:
                if self._restarts and not ended.is_failure:
                    executable.save()
                executable.close()
        except BaseException as error:
            self._context.phase = "stop"
            return ended if ended.is_failure else self._outcome_of(error)
        return ended

    def _outcome_of(self, error: BaseException) -> Outcome:
        if isinstance(error, SystemExit) and error.code in (None, 0):
            return self._ended(outcome.SUCCEEDED, "sys.exit(0)")
        if self._context.stop_event.is_set() and isinstance(error, (courier.CourierError, Stopped)):
            return self._ended(outcome.STOPPED, f"{type(error).__name__} while stopping")
        failed = self._ended(outcome.FAILED, describe(error))
        try:
            return _explained(failed, error)
        except Exception as strange:  # the user's exception does something when it is looked at
            return replace(failed, hint=f"it could not be shown in full: {strange!r}")

    def _ended(self, kind: str, cause: str) -> Outcome:
        return Outcome(
            worker=self._plan.name,
            kind=kind,
            phase=self._context.phase,
            attempt=self._context.attempt,
            cause=cause,
            pid=os.getpid(),
            host=socket.gethostname(),
        )


def _explained(failed: Outcome, error: BaseException) -> Outcome:
    """The outcome with all that can be told about the error."""
    return replace(
        failed,
        error_type=payload.qualified(type(error)),
        may_restart=not _has_opted_out(error),
        traceback=trimmed_traceback(error),
        hint=_hint(error),
        blames=_blamed(error),
        raised_in=_raised_in(error),
        out_of_memory=isinstance(error, MemoryError),
    )


def context_of(
    plan: WorkerPlan,
    program: str,
    launch_type: str,
    attempt: int,
    endpoints: Mapping[str, str],
    report: Callable[[Any], None],
    state_dir: str,
    moves: bool = False,
    listens_at: str = "",
    known_as: Mapping[str, str] = MappingProxyType({}),
) -> RunContext:
    """The run context of a worker."""
    reports: dict[str, Callable[[str], Report | Bound]] = {
        "stop": lambda why: StopRequested(plan.name, why),
        "waiting": lambda other: Waiting(plan.name, other),
        "done": lambda _: Done(plan.name, attempt),
        "bound": lambda text: _bound(plan.name, attempt, *text.split("\n")),
    }

    return RunContext(
        program=program,
        name=plan.name,
        label=plan.group,
        replica_index=plan.replica_index,
        num_replicas=plan.num_replicas,
        attempt=attempt,
        seed=plan.seed,
        launch_type=launch_type,
        endpoints=endpoints,
        gpus=plan.gpus,
        moves=moves,
        listens_at=listens_at,
        known_as=known_as,
        report=lambda event, text: report(reports[event](text)),
        state_path=state_dir,
    )


def _bound(worker: str, attempt: int, address: str, *endpoints: str) -> Bound:
    return Bound(worker, attempt, address, endpoints)


def describe(error: BaseException) -> str:
    """The error in one line, `ValueError: boom`; empty lines at the beginning of its message are left out."""
    lines = "".join(traceback.format_exception_only(error)).split("\n")
    first, *others = (line.strip() for line in lines if line.strip())
    return f"{first} {others[0]}" if first.endswith(":") and others else first


def trimmed_traceback(error: BaseException) -> str:
    """The traceback and its causes, without the frames of launchpad, which are not the user's concern."""
    whole = traceback.TracebackException.from_exception(error)
    part: traceback.TracebackException | None = whole
    seen: set[int] = set()
    while part is not None and id(part) not in seen:
        seen.add(id(part))
        theirs = [frame for frame in part.stack if not _is_ours(frame.filename)]
        part.stack = traceback.StackSummary.from_list(theirs) if theirs else part.stack
        part = part.__cause__ or part.__context__
    return "".join(whole.format()).rstrip()


def _has_opted_out(error: BaseException) -> bool:
    if isinstance(error, SystemExit):
        return error.code in outcome.NO_RESTART_CODES
    return any(isinstance(cause, DoNotRestart) for cause in _causes(error))


def _is_ours(filename: str) -> bool:
    return filename.startswith(_PACKAGE)


_PACKAGE = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep


def _hint(error: BaseException) -> str:
    if isinstance(error, ImportError):
        return (
            f"the worker looked in sys.path = {sys.path};"
            " install the module there, or launch from its folder"
        )
    if isinstance(error, MemoryError):
        return f"the peak memory of its process was {_peak_bytes() / 2**20:,.0f} MiB; {_memory_limit()}"
    return ""


def _memory_limit() -> str:
    import resource

    limit = resource.getrlimit(resource.RLIMIT_DATA)[0]
    if limit == resource.RLIM_INFINITY:
        return "see also `ulimit -v`"
    return f"its Resources(memory=…), or `ulimit -d`, allows it {limit / 2**20:,.0f} MiB"


def _peak_bytes() -> int:
    import resource

    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    """The error and what led to it; user code may have tied causes into a ring."""
    seen: set[int] = set()
    while error is not None and id(error) not in seen:
        seen.add(id(error))
        yield error
        error = error.__cause__ or error.__context__


def _blamed(error: BaseException) -> str:
    """The worker whose absence an error of courier reports."""
    absent = (courier.WorkerFailed, courier.OutcomeUnknown, courier.NotSent)
    return next((cause.server for cause in _causes(error) if isinstance(cause, absent)), "")


def _raised_in(error: BaseException) -> str:
    """The worker in which the exception was first raised, if it came out of a call."""
    remote = [cause for cause in _causes(error) if isinstance(cause, courier.RemoteTraceback)]
    if remote:
        return remote[-1].origin
    return error.server if isinstance(error, courier.CourierError) else ""
