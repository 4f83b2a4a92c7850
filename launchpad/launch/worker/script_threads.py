"""Workers that are threads of the launching script (`Running.thread_worker`), and the stacks of threads."""

from __future__ import annotations

import os
import socket
import sys
import threading
import traceback
from collections.abc import Callable, Iterable, Mapping

from launchpad import context, outcome
from launchpad.context import RunContext
from launchpad.events import Ended, Event
from launchpad.launch.backends.backend import Workers
from launchpad.launch.plan import LaunchPlan, WorkerPlan, seed_of
from launchpad.launch.rundir.directory import RunDirectory
from launchpad.launch.worker.error_report import describe, trimmed_traceback
from launchpad.launch.worker.worker import context_of
from launchpad.outcome import Outcome


class ScriptThreads(Workers):
    """Workers that are functions of the launching script; nothing is pickled, and nothing captured."""

    def __init__(
        self,
        plan: LaunchPlan,
        run: RunDirectory,
        report: Callable[[Event], None],
        places: Mapping[str, str] | None = None,
    ) -> None:
        self._plan, self._run_directory, self._report = plan, run, report
        self._places = plan.endpoints if places is None else places
        self._can_move = places is not None
        self._functions: dict[str, Callable[[], object]] = {}
        self._plans: dict[str, WorkerPlan] = {}
        self._contexts: dict[str, RunContext] = {}
        self._threads: list[threading.Thread] = []

    def __contains__(self, worker: str) -> bool:
        return worker in self._functions

    def add(self, worker: str, function: Callable[[], object]) -> WorkerPlan:
        """The plan of a new worker, for the supervisor."""
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
            self._places,
            self._report,
            str(self._run_directory.state(worker)),
            can_move=self._can_move,
        )
        context.inherit()
        self._contexts[worker] = me
        thread = threading.Thread(target=self._run, args=(me,), name=worker, daemon=True)
        self._threads.append(thread)
        context.belongs_to(thread, me)
        thread.start()

    def request_stop(self, worker: str, *, restarts: bool = False) -> None:
        """Sets its stop event and calls its handlers."""
        me = self._contexts[worker]
        in_its_context = context.entered(me)(me.ask_to_stop)
        threading.Thread(target=in_its_context, daemon=True).start()

    def kill(self, worker: str) -> None:
        """Reports its end although the thread still runs: no thread can be killed."""
        self._end(self._contexts[worker], outcome.STOPPED, "left behind", hung=True)

    def announce_gone(self, worker: str, why: str) -> None:
        """Notes it in every context."""
        for me in list(self._contexts.values()):
            me.mark_gone(worker, why)

    def stacks(self, worker: str) -> str:
        """Those of its thread, and of the threads that it has started."""
        if worker not in self._contexts:
            return ""
        mine = [thread for thread in self._threads if thread.name == worker]
        return thread_stacks(self._contexts[worker], mine)

    def close(self) -> None:
        """Waits a moment for the threads, which have all reported their end."""
        for thread in self._threads:
            if thread is not threading.current_thread():
                thread.join(1.0)

    def _run(self, me: RunContext) -> None:
        me.phase = "run"
        with context.entered(me):
            try:
                self._functions[me.name]()
            except BaseException as error:
                if isinstance(error, SystemExit) and error.code in (None, 0):
                    self._end(me, outcome.SUCCEEDED, "sys.exit(0)")
                else:
                    trace = trimmed_traceback(error)
                    self._end(me, outcome.FAILED, describe(error), trace)
                return
        self._end(me, outcome.STOPPED if me.stop_event.is_set() else outcome.SUCCEEDED)

    def _end(
        self, me: RunContext, kind: str, cause: str = "", trace: str = "", hung: bool = False
    ) -> None:
        ended = Outcome(
            worker=me.name,
            kind=kind,
            attempt=me.attempt,
            cause=cause,
            traceback=trace,
            pid=os.getpid(),
            host=socket.gethostname(),
            hung=hung,
        )
        self._report(Ended(ended))


def thread_stacks(worker: RunContext, main: Iterable[threading.Thread] = ()) -> str:
    """What the threads of a worker that is itself a thread are doing: its own, and those it has started."""
    mine = list(main)
    for thread in threading.enumerate():
        theirs = getattr(thread, "launchpad_context", None)
        if isinstance(theirs, RunContext) and worker in (theirs, theirs.parent):
            mine.append(thread)
    frames = sys._current_frames()
    texts = []
    for thread in dict.fromkeys(mine):
        if (frame := frames.get(thread.ident or 0)) is not None:
            lines = "".join(traceback.format_stack(frame))
            texts.append(f"Thread {thread.name} (most recent call last):\n{lines}")
    return "\n".join(texts)
