"""Threads: every worker is a thread of the launching process.

The same semantics as processes as far as threads can have them: arguments are copied, output goes to a
log per worker, a failure is named. Two things threads cannot have: an environment of their own, and an end
against their will. A worker that does not stop when its grace period is over is left behind, and named.
"""

from __future__ import annotations

import contextlib
import sys
import threading
import time
import traceback
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace

from launchpad import context, outcome
from launchpad.address import COURIER
from launchpad.interruption import raise_in
from launchpad.launch import capture, stacks
from launchpad.launch.backend import Backend, Ended, Noted, Report, Workers
from launchpad.launch.backends import one_host
from launchpad.launch.plan import LaunchPlan, WorkerPlan
from launchpad.launch.run_directory import RunDirectory
from launchpad.launch.worker import Worker, context_of
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
        return one_host.assign(workers, binds_cpus=False)

    def claim(self, plan: LaunchPlan, run: RunDirectory) -> LaunchPlan:
        """For this process."""
        return one_host.claim(plan, run)

    def start(
        self, plan: LaunchPlan, run: RunDirectory, report: Callable[[Report], None]
    ) -> Workers:
        """Nothing to prepare."""
        _warn_of_what_is_shared(plan)
        return ThreadWorkers(plan, run, report)


class TestThreads(Threads):
    """`test_mt`: the same, for unit tests."""

    __test__ = False  # no test case, whatever pytest makes of the name
    is_test = True


@dataclass(eq=False)
class _Live:
    """One attempt."""

    worker: Worker
    thread: threading.Thread
    context: context.RunContext
    is_given_up: bool = False
    is_left_behind: bool = False
    _ended: list[Outcome] = field(default_factory=list)

    def end(self, outcome: Outcome) -> bool:
        """Whether this is the first that is said of its end."""
        self._ended.append(outcome)
        return self._ended[0] is outcome


class ThreadWorkers(Workers):
    """The threads of one launch."""

    def __init__(
        self, plan: LaunchPlan, run: RunDirectory, report: Callable[[Report], None]
    ) -> None:
        self._plan, self._run, self._report = plan, run, report
        self._endpoints = plan.endpoints
        self._plans = {worker.name: worker for worker in plan.workers}
        self._live: dict[str, _Live] = {}
        self._undertakers: list[threading.Thread] = []
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
        thread = threading.Thread(target=lambda: self._live_and_end(live), name=worker, daemon=True)
        live = _Live(Worker(plan, me, self._report, lambda: raise_in(thread)), thread, me)
        self._live[worker] = live
        try:
            thread.start()
        except RuntimeError as error:
            self._end(live, _not_started(plan, attempt, error))

    def ask(self, worker: str, *, restarts: bool = False) -> None:
        """Asks; handlers run in a thread of their own, since they may take their time."""
        live = self._live[worker]
        thread = threading.Thread(
            target=_ask_to_stop, args=(live, restarts), name=f"{worker}-stop", daemon=True
        )
        try:
            thread.start()
        except RuntimeError:  # no thread to be had: better late than never
            _ask_to_stop(live, restarts)

    def kill(self, worker: str) -> None:
        """Gives the thread up, in a thread: to close what it serves may take a while."""
        live = self._live[worker]
        live.is_given_up = True
        undertaker = threading.Thread(
            target=self._give_up, args=(live,), name=f"{worker}-end", daemon=True
        )
        self._undertakers.append(undertaker)
        try:
            undertaker.start()
        except RuntimeError:
            self._give_up(live)

    def tell_gone(self, worker: str, why: str) -> None:
        """Writes it into every context."""
        for live in list(self._live.values()):
            live.context.mark_gone(worker, why)

    def stacks(self, worker: str) -> str:
        """Those of its own thread, and of the threads that it has started."""
        live = self._live.get(worker)
        return stacks.of_worker(live.context, [live.thread]) if live is not None else ""

    def crash(self, worker: str, why: str) -> str:
        """Interrupts it; its end will be a failure."""
        live = self._live.get(worker)
        if live is None or live.context.phase == "import":  # half a module would be left to others
            return ""
        with context.entered(live.context):
            live.worker.crash(why)
        return "Stopped"

    def close(self) -> None:
        """Waits a moment for the threads, which have reported their end or were given up."""
        deadline = time.monotonic() + _JOIN_S
        for live in self._live.values():
            live.context.stop_event.set()
        for thread in (
            *(live.thread for live in self._live.values() if not live.is_left_behind),
            *self._undertakers,
        ):
            if thread.ident is not None:
                thread.join(max(0.0, deadline - time.monotonic()))

    def _give_up(self, live: _Live) -> None:
        """Leaves a note of where the thread is, interrupts it, and makes room for another attempt."""
        me = live.context
        with context.entered(me):
            print(_stack_of(live.thread), file=sys.stderr)
            live.worker.abandon()
        live.thread.join(_UNWIND_S)
        live.is_left_behind = live.thread.is_alive()
        capture.end(me)
        cause = "did not stop in time; its thread was left behind"
        self._end(live, Outcome(me.name, outcome.STOPPED, me.phase, me.attempt, cause))

    def _live_and_end(self, live: _Live) -> None:
        me = live.context
        ended = Outcome(me.name, outcome.LOST, attempt=me.attempt, cause="it could not say why")
        try:
            with context.entered(live.context), self._captured(live.context):
                ended = live.worker.main()
                if ended.is_failure and ended.traceback:
                    print(ended.traceback)
        finally:
            self._end(live, ended)

    def _end(self, live: _Live, ended: Outcome) -> None:
        ended = replace(ended, hung=live.is_given_up)
        if live.end(ended):
            self._report(Ended(ended))

    @contextlib.contextmanager
    def _captured(self, me: context.RunContext) -> Iterator[None]:
        log = self._run.log(me.name, me.attempt)
        capture.begin(me, log, self._run.rotation, lambda text: self._report(Noted(me.name, text)))
        try:
            yield
        finally:
            capture.end(me)


def _ask_to_stop(live: _Live, restarts: bool) -> None:
    with context.entered(live.context):  # the user's handlers are the worker's code
        live.worker.ask_to_stop(restarts)


def _stack_of(thread: threading.Thread) -> str:
    frame = sys._current_frames().get(thread.ident or 0)
    stack = "".join(traceback.format_stack(frame)) if frame is not None else "(it has just ended)"
    return f"thread {thread.name!r} is left behind here:\n{stack}"


def _not_started(plan: WorkerPlan, attempt: int, error: Exception) -> Outcome:
    cause = f"no thread could be started: {error}"
    hint = "look at `ulimit -u` and the memory left; or use local_mp"
    return Outcome(plan.name, outcome.FAILED, "start", attempt, cause, hint=hint)


def _warn_of_what_is_shared(plan: LaunchPlan) -> None:
    """What threads cannot have of their own, and who was to have it."""
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
    texts = [text.format(_some(names)) for text, names in shared.items() if names]
    if texts:
        warnings.warn("; ".join(texts), UserWarning, stacklevel=6)


def _some(names: list[str]) -> str:
    return ", ".join(names[:5]) + (f" and {len(names) - 5} more" if len(names) > 5 else "")
