"""Workers that are threads of the launching script (`Running.thread_worker`), and the stacks of threads."""

from __future__ import annotations

import sys
import threading
import traceback
from collections.abc import Callable, Iterable, Mapping

from launchpad import context, outcome
from launchpad.context import RunContext
from launchpad.events import Ended, Event
from launchpad.executable import Code
from launchpad.interrupt import raise_in
from launchpad.launch.backends.backend import Workers
from launchpad.launch.plan import LaunchPlan, WorkerPlan, seed_of
from launchpad.launch.rundir.directory import RunDirectory
from launchpad.launch.worker.worker import Worker, context_of
from launchpad.nodes.python import CallFunction
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
        self._workers: dict[str, Worker] = {}
        self._threads: list[threading.Thread] = []

    def __contains__(self, worker: str) -> bool:
        return worker in self._plans

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
        self._workers[worker] = Worker(
            self._plans[worker],
            me,
            self._report,
            lambda: raise_in(thread),
            executable=CallFunction(Code(self._functions.pop(worker)), (), {}),
        )
        self._threads.append(thread)
        context.belongs_to(thread, me)
        thread.start()

    def request_stop(self, worker: str, *, restarts: bool = False) -> None:
        """Asks it, as any other worker; handlers run in a thread of their own."""
        if (asked := self._workers.get(worker)) is not None:
            in_its_context = context.entered(self._contexts[worker])(asked.ask_to_stop)
            threading.Thread(target=in_its_context, daemon=True).start()

    def kill(self, worker: str) -> None:
        """Reports its end although the thread still runs: no thread can be killed."""
        me = self._contexts[worker]
        cause = "did not stop in time; its thread was left behind"
        ended = Outcome(worker, outcome.STOPPED, me.phase, me.attempt, cause, hung=True)
        self._report(Ended(ended))

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
        with context.entered(me):
            ended = self._workers[me.name].main()
        del self._workers[
            me.name
        ]  # and what its function keeps, as clients: the run may be kept for long
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
