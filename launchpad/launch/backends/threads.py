"""Threads: every worker is a thread of the launching process.

Threads behave like processes as far as they can: arguments are copied, the output of each worker goes to its
own log, and failures name their worker. Threads cannot have an environment of their own, and nothing can end
them from outside. A worker that doesn't stop within its grace period is left behind, and reported by name.
"""

from __future__ import annotations

import contextlib
import importlib
import sys
import threading
import time
import traceback
import warnings
from collections.abc import Callable
from dataclasses import replace

from launchpad import outcome
from launchpad.address import COURIER
from launchpad.errors import LaunchError
from launchpad.launch.backends.backend import Workers
from launchpad.launch.backends.local_backend import LocalBackend
from launchpad.launch.output import stdout_router
from launchpad.launch.plan import LaunchPlan
from launchpad.launch.rundir.directory import RunDirectory
from launchpad.launch.worker.worker_threads import WorkerThread, WorkerThreads, in_a_thread
from launchpad.outcome import Outcome
from launchpad.runtime import context
from launchpad.runtime.events import Event, WorkerNote

_JOIN_S = 1.0
_UNWIND_S = 0.2
"""How long a thread that is given up has to unwind before it is left behind."""


class Threads(LocalBackend):
    """`local_mt`: for debugging, and for programs that wait more than they compute."""

    shares_process = True

    def endpoint(self, address: str, kind: str) -> str:
        return f"inproc:{{run}}/{address}" if kind == COURIER else "localhost:{port}"

    def create_workers(
        self, plan: LaunchPlan, run: RunDirectory, report: Callable[[Event], None]
    ) -> Workers:
        """Import the modules to preload. Warn if workers ask for something that threads can only share."""
        workers = plan.workers
        shared = {
            "threads share one environment and command line: those of {} are ignored": [
                w.name for w in workers if w.process.env or w.process.args or w.process.python
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
        for module in plan.preload:
            try:
                importlib.import_module(module)
            except Exception as error:
                why = f"{type(error).__name__}: {error}"
                raise LaunchError(f"preload={module!r} cannot be imported: {why}") from error
        return ThreadWorkers(plan, run, report)


class TestThreads(Threads):
    """`test_mt`: the same as `local_mt`, for unit tests."""

    __test__ = False  # pytest would take it for a test case
    is_test = True


class ThreadWorkers(WorkerThreads):
    """The threads of one launch. Their output goes to their logs."""

    def __init__(
        self, plan: LaunchPlan, run: RunDirectory, report: Callable[[Event], None]
    ) -> None:
        super().__init__(plan, run, report)
        self._plans = {worker.name: worker for worker in plan.workers}
        self._abandon_threads: list[threading.Thread] = []
        stdout_router.prepare()

    def _start(self, worker: str, attempt: int) -> None:
        new = self._new(worker, attempt, self._run_and_end)
        try:
            new.thread.start()
        except RuntimeError as error:
            cause = f"no thread could be started: {error}"
            hint = "look at `ulimit -u` and the memory left; or use local_mp"
            self._end(new, Outcome(worker, outcome.FAILED, "start", attempt, cause, hint=hint))

    def _kill(self, worker_thread: WorkerThread, at_once: bool) -> None:
        """Give the thread up, in another thread because closing its servers may take a while."""
        worker_thread.is_given_up = True
        name = f"{worker_thread.context.name}-end"
        self._abandon_threads.append(in_a_thread(name, self._give_up, worker_thread, at_once))

    def crash(self, worker: str, why: str) -> str:
        """Interrupt a worker, so that it fails."""
        worker_thread = self._threads.get(worker)
        # Interrupting an import would leave half a module for other workers.
        if worker_thread is None or worker_thread.context.link.phase == "import":
            return ""
        with context.entered(worker_thread.context):
            worker_thread.worker.crash(why)
        return "Stopped"

    def close(self) -> None:
        """Wait a moment for the threads, which have reported their end or were given up."""
        deadline = time.monotonic() + _JOIN_S
        for worker_thread in self._threads.values():
            worker_thread.context.stop.event.set()
        threads = [t.thread for t in self._threads.values() if not t.is_given_up]
        for thread in (*threads, *self._abandon_threads):
            if thread.ident is not None:
                thread.join(max(0.0, deadline - time.monotonic()))
        # The script may keep its `Running` for long. With these threads, it would also keep all that workers
        # served.
        self._threads.clear()

    def _give_up(self, worker_thread: WorkerThread, at_once: bool) -> None:
        """Leave a note of where the thread is, interrupt it, and make room for another attempt.

        Args:
            at_once: Leave no note, because the user is waiting.
        """
        me = worker_thread.context
        with context.entered(me):
            if not at_once:
                _print_stack(worker_thread.thread)
            worker_thread.worker.abandon()
        worker_thread.thread.join(_UNWIND_S)
        stdout_router.end(me)
        self._leave_behind(worker_thread)

    def _run_and_end(self, worker_thread: WorkerThread) -> None:
        me = worker_thread.context
        end = Outcome(me.name, outcome.LOST, attempt=me.attempt, cause="it could not say why")
        try:
            with context.entered(me), contextlib.ExitStack() as stack:
                try:
                    stdout_router.begin(
                        me,
                        self._run.log(me.name, me.attempt),
                        self._run.rotation,
                        lambda text: self._report(WorkerNote(me.name, text)),
                    )
                except OSError as error:
                    cause = f"its log could not be opened: {error}"
                    end = replace(end, kind=outcome.FAILED, phase="start", cause=cause)
                    return
                stack.callback(stdout_router.end, me)
                end = worker_thread.worker.main()
                if end.is_failure and end.traceback:
                    print(end.traceback)
        finally:
            self._end(worker_thread, end)


def _print_stack(thread: threading.Thread) -> None:
    frame = sys._current_frames().get(thread.ident or 0)
    stack = "".join(traceback.format_stack(frame)) if frame else "(it has just ended)"
    print(f"thread {thread.name!r} is left behind here:\n{stack}", file=sys.stderr)
