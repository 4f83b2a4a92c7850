"""Threads of the launching script that belong to a program: `Running.thread_worker`."""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Callable, Mapping
from dataclasses import replace

from launchpad import context, outcome
from launchpad.context import RunContext
from launchpad.launch import stacks
from launchpad.launch.backend import Ended, Report, Workers
from launchpad.launch.explanation import describe, trimmed_traceback
from launchpad.launch.plan import LaunchPlan, WorkerPlan, seed_of
from launchpad.launch.run_directory import RunDirectory
from launchpad.launch.worker import context_of
from launchpad.outcome import Outcome


class OwnThreads(Workers):
    """Workers that are functions of the launching script; nothing is pickled, and nothing captured."""

    def __init__(
        self,
        plan: LaunchPlan,
        run: RunDirectory,
        report: Callable[[Report], None],
        places: Mapping[str, str] | None = None,
    ) -> None:
        self._plan, self._run_directory, self._report = plan, run, report
        self._places = places
        self._functions: dict[str, Callable[[], object]] = {}
        self._plans: dict[str, WorkerPlan] = {}
        self._contexts: dict[str, RunContext] = {}
        self._threads: list[threading.Thread] = []

    def __contains__(self, worker: str) -> bool:
        return worker in self._functions

    def add(self, worker: str, function: Callable[[], object]) -> WorkerPlan:
        """What the supervisor has to know of a new worker."""
        self._functions[worker] = function
        kind = f"thread_worker({getattr(function, '__qualname__', function)})"
        seed = seed_of(self._plan.program, worker)
        self._plans[worker] = WorkerPlan(worker, worker, 0, 1, kind, seed, runs=True)
        return self._plans[worker]

    def start(self, worker: str, attempt: int) -> None:
        """Starts the thread."""
        me = context_of(
            self._plans[worker],
            self._plan.program,
            self._plan.launch_type,
            attempt,
            self._plan.endpoints if self._places is None else self._places,
            self._report,
            str(self._run_directory.state(worker)),
            moves=self._places is not None,
        )
        context.inherit()
        self._contexts[worker] = me
        thread = threading.Thread(target=self._run, args=(me,), name=worker, daemon=True)
        self._threads.append(thread)
        thread.start()

    def ask(self, worker: str, *, restarts: bool = False) -> None:
        """Sets its stop event and calls its handlers."""
        threading.Thread(target=self._ask, args=(self._contexts[worker],), daemon=True).start()

    def kill(self, worker: str) -> None:
        """Gives the thread up."""
        ended = self._outcome(self._contexts[worker], outcome.STOPPED, "left behind")
        self._report(Ended(replace(ended, hung=True)))

    def tell_gone(self, worker: str, why: str) -> None:
        """Writes it into every context."""
        for me in list(self._contexts.values()):
            me.mark_gone(worker, why)

    def stacks(self, worker: str) -> str:
        """Those of its thread, and of the threads that it has started."""
        mine = [thread for thread in self._threads if thread.name == worker]
        return stacks.of_worker(self._contexts[worker], mine) if worker in self._contexts else ""

    def close(self) -> None:
        """Waits a moment for the threads, which have all reported their end."""
        for thread in self._threads:
            if thread is not threading.current_thread():
                thread.join(1.0)

    def _ask(self, me: RunContext) -> None:
        with context.entered(me):
            me.ask_to_stop()

    def _run(self, me: RunContext) -> None:
        me.phase = "run"
        with context.entered(me):
            try:
                self._functions[me.name]()
            except BaseException as error:
                if isinstance(error, SystemExit) and error.code in (None, 0):
                    self._report(Ended(self._outcome(me, outcome.SUCCEEDED, "sys.exit(0)")))
                    return
                failed = self._outcome(
                    me, outcome.FAILED, describe(error), trimmed_traceback(error)
                )
                self._report(Ended(failed))
                return
        kind = outcome.STOPPED if me.stop_event.is_set() else outcome.SUCCEEDED
        self._report(Ended(self._outcome(me, kind, "")))

    def _outcome(self, me: RunContext, kind: str, cause: str, trace: str = "") -> Outcome:
        return Outcome(
            worker=me.name,
            kind=kind,
            attempt=me.attempt,
            cause=cause,
            traceback=trace,
            pid=os.getpid(),
            host=socket.gethostname(),
        )
