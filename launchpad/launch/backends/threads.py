"""Threads: every worker is a thread of the launching process.

The same semantics as processes as far as threads can have them: arguments are copied, output goes to a
log per worker, a failure is named. Two things threads cannot have: an environment of their own, and an end
from outside. A worker that does not stop when its grace period is over is left behind, and named.
"""

from __future__ import annotations

import contextlib
import sys
import threading
import time
import traceback
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from launchpad import context, outcome
from launchpad.address import COURIER
from launchpad.events import Ended, Event, WorkerNote
from launchpad.interrupt import raise_in
from launchpad.launch.backends import local_host
from launchpad.launch.backends.backend import Backend, Workers
from launchpad.launch.output import stdout_router
from launchpad.launch.plan import LaunchPlan, WorkerPlan
from launchpad.launch.rundir.directory import RunDirectory
from launchpad.launch.worker.script_threads import thread_stacks
from launchpad.launch.worker.worker import Worker, context_of
from launchpad.outcome import Outcome

_JOIN_S = 1.0
_UNWIND_S = 0.2
"""How long a thread that is given up has for unwinding, before it is left behind."""


class Threads(Backend):
    """`local_mt`: for debugging, and for programs that wait more than they compute."""

    def endpoint(self, address: str, kind: str) -> str:
        """In this process, or a free port."""
        return f"inproc:{{run}}/{address}" if kind == COURIER else "localhost:{port}"

    def assign(self, workers: Sequence[WorkerPlan]) -> Sequence[WorkerPlan]:
        """GPUs of this host."""
        return local_host.assign(workers, binds_cpus=False)

    def claim(self, plan: LaunchPlan, run: RunDirectory) -> LaunchPlan:
        """For this process."""
        return local_host.claim(plan, run)

    def create_workers(
        self, plan: LaunchPlan, run: RunDirectory, report: Callable[[Event], None]
    ) -> Workers:
        """Prepares nothing; warns of what workers ask for and threads cannot have of their own."""
        workers = plan.workers
        shared = {
            "threads share one environment and command line: those of {} are ignored": [
                w.name for w in workers if w.env or w.args or w.python
            ],
            "threads share one CUDA_VISIBLE_DEVICES: lp.current().gpus says in {} which GPUs it was given": [
                w.name for w in workers if w.gpus
            ],
            "threads share the launcher's CPUs and memory: {} cannot be kept to its own": [
                w.name
                for w in workers
                if w.resources.cpus is not None or w.resources.memory_bytes is not None
            ],
        }
        texts = []
        for text, names in shared.items():
            more = f" and {len(names) - 5} more" if len(names) > 5 else ""
            if names:
                texts.append(text.format(", ".join(names[:5]) + more))
        if texts:
            warnings.warn("; ".join(texts), UserWarning, stacklevel=4)
        return ThreadWorkers(plan, run, report)


class TestThreads(Threads):
    """`test_mt`: the same, for unit tests."""

    __test__ = False  # no test case, whatever pytest makes of the name
    is_test = True


@dataclass(eq=False)
class _RunningThread:
    """One attempt."""

    worker: Worker
    thread: threading.Thread
    context: context.RunContext
    is_given_up: bool = False
    is_left_behind: bool = False
    ends: list[Outcome] = field(default_factory=list)
    """What was said of its end, by itself and by the thread that gave it up; the first counts."""


class ThreadWorkers(Workers):
    """The threads of one launch."""

    def __init__(
        self, plan: LaunchPlan, run: RunDirectory, report: Callable[[Event], None]
    ) -> None:
        self._plan, self._run, self._report = plan, run, report
        self._endpoints = plan.endpoints
        self._plans = {worker.name: worker for worker in plan.workers}
        self._running_threads: dict[str, _RunningThread] = {}
        self._abandon_threads: list[threading.Thread] = []
        self._skips_grace = False
        context.inherit()

    def start(self, worker: str, attempt: int) -> None:
        """Starts a thread."""
        plan = self._plans[worker]
        me = context_of(
            plan,
            self._plan.program,
            self._plan.launch_type,
            attempt,
            self._endpoints,
            self._report,
            str(self._run.state(worker)),
        )
        thread = threading.Thread(
            target=lambda: self._run_and_end(running_thread), name=worker, daemon=True
        )
        running_thread = _RunningThread(
            Worker(plan, me, self._report, lambda: raise_in(thread)), thread, me
        )
        self._running_threads[worker] = running_thread
        context.belongs_to(thread, me)
        try:
            thread.start()
        except RuntimeError as error:
            cause = f"no thread could be started: {error}"
            hint = "look at `ulimit -u` and the memory left; or use local_mp"
            failed = Outcome(worker, outcome.FAILED, "start", attempt, cause, hint=hint)
            self._end(running_thread, failed)

    def request_stop(self, worker: str, *, restarts: bool = False) -> None:
        """Asks; handlers run in a thread of their own, since they may take their time."""
        running_thread = self._running_threads[worker]
        thread = threading.Thread(
            target=_ask_to_stop, args=(running_thread, restarts), name=f"{worker}-stop", daemon=True
        )
        try:
            thread.start()
        except RuntimeError:  # no thread to be had: better late than never
            _ask_to_stop(running_thread, restarts)

    def kill(self, worker: str) -> None:
        """Gives the thread up, in another thread: to close what it serves may take a while."""
        running_thread = self._running_threads[worker]
        running_thread.is_given_up = True
        abandon_thread = threading.Thread(
            target=self._give_up, args=(running_thread,), name=f"{worker}-end", daemon=True
        )
        self._abandon_threads.append(abandon_thread)
        try:
            abandon_thread.start()
        except RuntimeError:
            self._give_up(running_thread)

    def skip_grace(self) -> None:
        """Leaves no notes of where threads are."""
        self._skips_grace = True

    def announce_gone(self, worker: str, why: str) -> None:
        """Writes it into every context."""
        for running_thread in list(self._running_threads.values()):
            running_thread.context.mark_gone(worker, why)

    def stacks(self, worker: str) -> str:
        """Those of its own thread, and of the threads that it has started."""
        running_thread = self._running_threads.get(worker)
        if running_thread is None:
            return ""
        return thread_stacks(running_thread.context, [running_thread.thread])

    def crash(self, worker: str, why: str) -> str:
        """Interrupts it; its end will be a failure."""
        running_thread = self._running_threads.get(worker)
        # While it imports it is left alone: other workers would get half a module.
        if running_thread is None or running_thread.context.phase == "import":
            return ""
        with context.entered(running_thread.context):
            running_thread.worker.crash(why)
        return "Stopped"

    def close(self) -> None:
        """Waits a moment for the threads, which have reported their end or were given up."""
        deadline = time.monotonic() + _JOIN_S
        for running_thread in self._running_threads.values():
            running_thread.context.stop_event.set()
        threads = [t.thread for t in self._running_threads.values() if not t.is_left_behind]
        for thread in (*threads, *self._abandon_threads):
            if thread.ident is not None:
                thread.join(max(0.0, deadline - time.monotonic()))

    def _give_up(self, running_thread: _RunningThread) -> None:
        """Leaves a note of where the thread is, interrupts it, and makes room for another attempt."""
        me = running_thread.context
        with context.entered(me):
            if not self._skips_grace:
                _print_stack(running_thread.thread)
            running_thread.worker.abandon()
        running_thread.thread.join(_UNWIND_S)
        running_thread.is_left_behind = running_thread.thread.is_alive()
        stdout_router.end(me)
        cause = "did not stop in time; its thread was left behind"
        self._end(running_thread, Outcome(me.name, outcome.STOPPED, me.phase, me.attempt, cause))

    def _run_and_end(self, running_thread: _RunningThread) -> None:
        me = running_thread.context
        ended = Outcome(me.name, outcome.LOST, attempt=me.attempt, cause="it could not say why")
        try:
            with context.entered(me), contextlib.ExitStack() as stack:
                log = self._run.log(me.name, me.attempt)
                try:
                    stdout_router.begin(
                        me,
                        log,
                        self._run.rotation,
                        lambda text: self._report(WorkerNote(me.name, text)),
                    )
                except OSError as error:
                    cause = f"its log could not be opened: {error}"
                    ended = replace(ended, kind=outcome.FAILED, phase="start", cause=cause)
                    return
                stack.callback(stdout_router.end, me)
                ended = running_thread.worker.main()
                if ended.is_failure and ended.traceback:
                    print(ended.traceback)
        finally:
            self._end(running_thread, ended)

    def _end(self, running_thread: _RunningThread, ended: Outcome) -> None:
        ended = replace(ended, hung=running_thread.is_given_up)
        running_thread.ends.append(ended)
        if running_thread.ends[0] is ended:
            self._report(Ended(ended))


def _print_stack(thread: threading.Thread) -> None:
    frame = sys._current_frames().get(thread.ident or 0)
    stack = "".join(traceback.format_stack(frame)) if frame else "(it has just ended)"
    print(f"thread {thread.name!r} is left behind here:\n{stack}", file=sys.stderr)


def _ask_to_stop(running_thread: _RunningThread, restarts: bool) -> None:
    with context.entered(running_thread.context):  # the user's handlers are the worker's code
        running_thread.worker.ask_to_stop(restarts)
