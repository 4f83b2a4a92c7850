"""One attempt to run one executable, the same in every backend.

    import   ──▶ init             ──▶ run           ──▶ stop  ──▶ outcome
    unpickle     construct, serve     run() or wait     close

`main` runs in the worker's own thread, which in a process is the main one. Commands come from another
thread. A run() that never asks about stopping is interrupted: `Stopped` is raised in it.
"""

from __future__ import annotations

import contextlib
import os
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import replace

import launchpad.runtime.stopping  # noqa: F401  so that user code which is to stop finds it imported
from launchpad import courier, outcome
from launchpad.courier.own_threads import OwnThread
from launchpad.courier.telemetry import recording, registry
from launchpad.errors import Stopped
from launchpad.launch.plan import WorkerPlan
from launchpad.launch.planning import absl_flags, payload
from launchpad.launch.worker import error_report
from launchpad.launch.worker.debugger import CallInMain, Debugger
from launchpad.launch.worker.spec import WorkerSpec
from launchpad.outcome import Outcome
from launchpad.program import UNTIL_RUN
from launchpad.runtime import context as run_context
from launchpad.runtime import results
from launchpad.runtime.addresses import KnownAddresses
from launchpad.runtime.commands import (
    AnnounceGone,
    AnnounceWatermarks,
    AttachDebugger,
    ForwardedCommand,
    StopWorker,
)
from launchpad.runtime.context import RunContext
from launchpad.runtime.events import (
    Done,
    EdgesCounted,
    Event,
    Exiting,
    Heartbeat,
    Ready,
    SpansRecorded,
    WorkerNote,
)
from launchpad.runtime.executable import Executable
from launchpad.runtime.interrupt import is_consequence
from launchpad.runtime.link import SupervisorLink
from launchpad.runtime.watermarks import COUNTS, RECORDING, parse_recording
from launchpad.state.fence import AttemptId, Fence
from launchpad.state.own_state import OwnState
from launchpad.telemetry import process_usage

_ANSWERS = 4
"""The most requests for numbers that may wait while a GPU driver hangs. Further requests get no answer."""


class Worker:
    """One attempt of a worker. `main` runs its executable, and returns how it ended.

    Args:
        context: Its run context, already current in the thread that calls `main`.
        report: Called with each event, such as Ready, Returned, Done, EdgesCounted and SpansRecorded.
        interrupt: Raises `Stopped` in the thread that is in `main`; or `RaisedFromOutside`, if `Stopped`
            must be raised again after user code has caught it.
        on_phase: Called when the worker enters `init`, or `import` again. Events such as Ready report the
            rest.
        limited: The context in which the user's code runs, with its memory limit. The outcome is made outside
            this context, where there is memory for it.
        executable: The executable, if it was never pickled.
        call_in_main: Interrupts the main thread, if that is the worker's own.
        set_up: Runs a pickled function that must run first. In a process of several workers, the function
            runs once.
    """

    def __init__(
        self,
        plan: WorkerPlan,
        context: RunContext,
        report: Callable[[Event], None],
        interrupt: Callable[[], None],
        on_phase: Callable[[str], None] = lambda phase: None,
        limited: Callable[[], AbstractContextManager[None]] = contextlib.nullcontext,
        executable: Executable | None = None,
        call_in_main: CallInMain | None = None,
        set_up: Callable[[bytes], None] = payload.set_up,
    ) -> None:
        self._set_up = set_up
        self._plan = plan
        self._context = context
        self._report = report
        self._on_phase = on_phase
        self._limited = limited
        self._restarts = False
        self._crash = ""
        self._executable = executable
        self.debugger = Debugger(context, interrupt, call_in_main)
        context.stop.interruption.raise_in_thread = self.debugger.interrupt
        context.stop.interruption.on_caught = self._report_caught
        context.link.crash = self.crash
        self._is_counted = False
        self._free_answers = threading.Semaphore(_ANSWERS)
        context.link.watermarks.on_growth(COUNTS, lambda _, number: self._answer(number))
        self._sessions: list[recording.RecordingSession] = []
        context.link.watermarks.on_growth(RECORDING, lambda _, value: self._record(value))

    def main(self) -> Outcome:
        """Run the attempt from beginning to end. Nothing is raised: whatever happens becomes the outcome."""
        self.debugger.thread = threading.current_thread()
        try:
            with self._limited():
                for packed in self._plan.payload.setup:
                    with self._context.stop.interruption.allowed():
                        self._set_up(packed)
                if self._executable is None:
                    self._executable = payload.load(
                        self._plan.payload.stream, self._plan.payload.buffers, self._building
                    )
                end = self._open_and_run(self._executable)
        except BaseException as raised:
            error = raised.args[0] if isinstance(raised, payload.BuildFailed) else raised
            self._context.link.end_if_child(error)
            end = self._outcome_of(error)
            if end.is_failure and self._plan.policy.pdb:
                self.debugger.wait_with(error, end)
        self._context.link.end_if_child(None)
        self.debugger.close("has ended")
        # Saving and closing may take longer than the time between heartbeats.
        if self._plan.policy.restart.heartbeat_s is not None:
            self._report(Heartbeat(self._plan.name, self._context.attempt, is_last=True))
        # Let threads that the worker leaves running see the stop.
        self._context.stop.request()
        try:
            if self._executable is not None:
                with contextlib.nullcontext() if end.out_of_memory else self._limited():
                    self._close(self._executable, in_good_order=not end.is_failure)
        except BaseException as error:
            self._context.link.phase = "stop"
            # A failure to close counts, unless another failure came before.
            end = end if end.is_failure else self._outcome_of(error)
        # Drop what these keep, such as clients, because the run itself may be kept for a long time.
        self._executable = None
        self._context.exits.clear()
        self._report_counts(0, is_last=True)
        recording.end(self._sessions)
        registry.forget(self._context.link.peer)
        return self._ended(outcome.FAILED, self._crash) if self._crash else end

    def abandon(self) -> None:
        """Interrupt the worker and close its servers, from another thread, because `main` does not return."""
        self.debugger.close("is given up")
        self._context.stop.give_up()
        self._context.stop.interruption.request()
        self._context.stop.interruption.give_up()
        with contextlib.suppress(Exception):
            if self._executable is not None:
                self._executable.abandon()
                self._executable.close()

    def crash(self, why: str) -> None:
        """Interrupt the worker, from another thread. However it ends then, its end is a failure."""
        self._crash = why
        self.debugger.close("fails")
        executable = self._executable
        if executable is not None:
            # Do this first, because callers of the worker must see a failure, not a stop.
            executable.abandon()
        self._context.stop.request()
        self._context.stop.interruption.request()

    def execute(self, command: ForwardedCommand) -> None:
        """Execute a command of the launcher, from another thread, and return at once."""
        match command:
            case StopWorker(restarts=restarts):
                self._ask_in_a_thread(restarts)
            case AnnounceGone(worker, why):
                self._context.link.mark_gone(worker, why)
            case AnnounceWatermarks(values=values):
                self._context.link.watermarks.grow(values)
            case AttachDebugger(path=path, token=token, thread=thread):
                self.debugger.attach(path, token, thread)

    def _ask_in_a_thread(self, restarts: bool) -> None:
        """Ask the worker to stop, in a new thread, because the user's handlers may take their time."""

        def ask() -> None:
            with run_context.entered(self._context):
                self.ask_to_stop(restarts)

        try:
            OwnThread(target=ask, name=f"{self._plan.name}-stop").start()
        except RuntimeError:  # no new thread can be started, so ask in this one
            ask()

    def ask_to_stop(self, restarts: bool = False) -> None:
        """Set the stop event, call the stop handlers, and interrupt a run() that never asked.

        Args:
            restarts: True if the worker is started again. Then the object that it has built may save itself
                before it is closed. If a later launch goes on with its state, the object does so at every
                end.
        """
        self._restarts = restarts
        self.debugger.close("stops")
        self._context.stop.request()
        if not self._context.stop.is_watched:
            self._context.stop.interruption.request()

    @contextlib.contextmanager
    def _building(self) -> Iterator[None]:
        """Build a Deferred in the block. A Deferred counts as a constructor, and is interrupted like one."""
        self._context.link.phase = "init"
        self._on_phase("init")
        with self._context.stop.interruption.allowed():
            yield
        self._context.link.phase = "import"
        self._on_phase("import")

    def _open_and_run(self, executable: Executable) -> Outcome:
        """Construct, serve and run. The worker is interrupted only in here."""
        try:
            with self._context.stop.interruption.allowed():
                self._context.link.phase = "init"
                self._on_phase("init")
                absl_flags.refresh()
                run = executable.open()
                name = self._plan.name
                attempt = self._context.attempt
                result = None
                self._context.link.phase = "run"
                self._report(Ready(name, attempt, run is not None))
                if run is not None:
                    result = run()
                else:
                    self._context.stop.is_watched = True
                    executable.serve(self._context.stop.event)
        except Stopped:
            return self._ended(outcome.STOPPED, "interrupted by the program's stop")
        event = results.returned(name, attempt, result)
        if event is not None:
            self._report(event)
        is_stopped = self._context.stop.event.is_set()
        if run is not None and self._plan.policy.serves_until != UNTIL_RUN and not is_stopped:
            self._context.stop.is_watched = True
            self._report(Done(name, attempt))
            self._context.stop.event.wait()
            return self._ended(outcome.SUCCEEDED, "")
        return self._ended(outcome.STOPPED if is_stopped else outcome.SUCCEEDED, "")

    def _close(self, executable: Executable, *, in_good_order: bool) -> None:
        """Close the executable. If all is well, have it first save itself and release what it holds."""
        try:
            if not in_good_order or self._crash:
                return
            if self._restarts or self._context.state.places.is_kept:
                executable.save()
            self._context.link.phase = "stop"
            # From here on, the supervisor gives the worker as much time as its process has to exit.
            name = self._plan.name
            attempt = self._context.attempt
            self._report(Exiting(name, attempt, "close(), or a function given to lp.on_exit()"))
            executable.release()
        finally:
            executable.close()

    def _outcome_of(self, error: BaseException) -> Outcome:
        """Return the outcome of an attempt that an exception has ended."""
        if isinstance(error, SystemExit) and error.code in (None, 0):
            return self._ended(outcome.SUCCEEDED, "sys.exit(0)")
        is_of_the_stop = isinstance(error, courier.CourierError) or is_consequence(error)
        if self._context.stop.event.is_set() and is_of_the_stop:
            return self._ended(outcome.STOPPED, f"{type(error).__name__} while stopping")
        end = self._ended(outcome.FAILED, error_report.describe(error))
        is_limited = self._limited is not contextlib.nullcontext
        memory_bytes = self._plan.resources.memory_bytes if is_limited else None
        try:
            return error_report.explained(end, error, memory_bytes)
        except Exception as strange:  # the user's exception raises an error when it is inspected
            return replace(end, hint=f"it could not be shown in full: {strange!r}")

    def _report_caught(self, place: str) -> None:
        name = self._plan.name
        self._report(
            WorkerNote(
                name,
                f"{name} is to stop, has caught lp.Stopped in {place}, and goes on: it is raised again."
                " `except Exception:` would let it pass.",
            )
        )

    def _answer(self, number: int) -> None:
        """Report the worker's counts and usage. With GPUs, do so in a thread, since their driver may hang."""
        if not self._context.gpus:
            self._report_counts(number)
        elif self._free_answers.acquire(blocking=False):

            def answer() -> None:
                try:
                    self._report_counts(number)
                finally:
                    self._free_answers.release()

            try:
                OwnThread(target=answer, name="launchpad-metrics").start()
            except RuntimeError:  # no new thread can be started, so there is no answer
                self._free_answers.release()

    def _report_counts(self, number: int, *, is_last: bool = False) -> None:
        if self._is_counted:
            return
        self._is_counted = is_last
        usage = None
        if not is_last:
            is_shared = not run_context.is_a_process(self._context)
            usage = process_usage.of_this_process(self._context.gpus, is_shared=is_shared)
        counts = registry.counted(self._context.link.peer)
        name = self._plan.name
        attempt = self._context.attempt
        self._report(EdgesCounted(name, attempt, number, is_last, counts, usage))

    def _record(self, value: int) -> None:
        """Record the worker's calls, and report them when the time is up."""
        number, seconds, rate = parse_recording(value)
        name = self._plan.name
        attempt = self._context.attempt

        def report(recorded: recording.Recorded) -> None:
            self._report(SpansRecorded(name, attempt, number, recorded))

        # If no new thread can be started, this worker's recording is missing.
        with contextlib.suppress(RuntimeError):
            self._sessions.append(recording.record(self._context.link.peer, seconds, rate, report))

    def _ended(self, kind: str, cause: str) -> Outcome:
        return Outcome(
            worker=self._plan.name,
            kind=kind,
            phase=self._context.link.phase,
            attempt=self._context.attempt,
            cause=cause,
            pid=os.getpid(),
            host=socket.gethostname(),
        )


def _fence_of(run_id: str, attempt: int) -> Fence:
    """Return the fence of an attempt. Without a run id, all attempts are on one host, in sequence."""
    return Fence(AttemptId(run_id, attempt) if run_id else None)


def context_of(spec: WorkerSpec, attempt: int, report: Callable[[Event], None]) -> RunContext:
    """Return the run context of one attempt of a worker."""
    plan = spec.plan
    return RunContext(
        program=spec.program,
        name=plan.name,
        label=plan.group,
        replica_index=plan.replica_index,
        num_replicas=plan.num_replicas,
        attempt=attempt,
        seed=plan.seed,
        launch_type=spec.launch_type,
        link=SupervisorLink(plan.name, attempt, report, plan.policy.restart),
        state=OwnState(plan.name, spec.state, _fence_of(spec.state.run_id, attempt)),
        addresses=KnownAddresses(
            spec.endpoints, spec.can_move, spec.listens_at, spec.known_as, plan.policy.ordering
        ),
        gpus=plan.gpus,
    )
