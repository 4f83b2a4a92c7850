"""Workers that are threads of this process: their base class, and workers that run functions of the script.

`Running.thread_worker` adds a function of the script. The threads of `local_mt` are in `backends/threads`.
"""

from __future__ import annotations

import abc
import sys
import threading
import traceback
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial

from launchpad import outcome
from launchpad.launch.backends.backend import Workers
from launchpad.launch.plan import LaunchPlan, WorkerPlan, seed_of
from launchpad.launch.planning import payload
from launchpad.launch.rundir.directory import RunDirectory
from launchpad.launch.worker.spec import WorkerSpec
from launchpad.launch.worker.worker import Worker, context_of
from launchpad.nodes.python import CallFunction
from launchpad.outcome import Outcome
from launchpad.runtime import context
from launchpad.runtime.commands import (
    AnnounceGone,
    AnnounceWatermarks,
    AttachDebugger,
    Command,
    KillWorker,
    StartWorker,
    StopWorker,
)
from launchpad.runtime.context import RunContext
from launchpad.runtime.events import Ended, Event
from launchpad.runtime.executable import Code, Executable
from launchpad.runtime.interrupt import interrupt_thread


@dataclass(eq=False)
class WorkerThread:
    """One attempt of a worker that is a thread."""

    worker: Worker
    thread: threading.Thread
    context: RunContext
    is_given_up: bool = False
    ends: list[Outcome] = field(default_factory=list)
    """The outcomes noted for the attempt, by itself and by what gave it up. The first one counts."""

    def stacks(self) -> str:
        """Return what the thread is doing, and what the threads that it has started are doing."""
        own_threads = [self.thread]
        for thread in threading.enumerate():
            theirs = getattr(thread, "launchpad_context", None)
            if isinstance(theirs, RunContext) and theirs.link is self.context.link:
                own_threads.append(thread)
        frames = sys._current_frames()
        texts = []
        for thread in dict.fromkeys(own_threads):
            frame = frames.get(thread.ident or 0)
            if frame is not None:
                lines = "".join(traceback.format_stack(frame))
                texts.append(f"Thread {thread.name} (most recent call last):\n{lines}")
        return "\n".join(texts)


class WorkerThreads(Workers):
    """The workers of one launch that are threads.

    Args:
        places: Address name → its present endpoint, if workers move.
    """

    def __init__(
        self,
        plan: LaunchPlan,
        run: RunDirectory,
        report: Callable[[Event], None],
        places: Mapping[str, str] | None = None,
    ) -> None:
        self._plan = plan
        self._run = run
        self._report = report
        self._places = plan.endpoints if places is None else places
        self._can_move = places is not None
        self._plans: dict[str, WorkerPlan] = {}
        self._threads: dict[str, WorkerThread] = {}
        # Held while a setup function runs. Without the lock, threads that start together would all run the
        # function, or go on before it has returned.
        self._set_up_lock = threading.Lock()
        self._is_set_up: set[bytes] = set()

    def execute(self, command: Command) -> None:
        """Execute a command. If it is for the worker itself, the `Worker` in the thread executes it."""
        match command:
            case StartWorker(name, attempt):
                self._start(name, attempt)
            case KillWorker(name, at_once=at_once):
                self._kill(self._threads[name], at_once)
            case AnnounceGone(to=""):
                for thread in list(self._threads.values()):
                    thread.worker.execute(command)
            case StopWorker(name) | AnnounceWatermarks(name) | AnnounceGone(to=name):
                worker_thread = self._threads.get(name)
                if worker_thread is not None:
                    worker_thread.worker.execute(command)

    @abc.abstractmethod
    def _start(self, worker: str, attempt: int) -> None:
        """Start the thread of a new attempt."""

    @abc.abstractmethod
    def _kill(self, worker_thread: WorkerThread, at_once: bool) -> None:
        """Give the thread up, and report the end of its attempt."""

    def stacks(self, worker: str) -> str:
        worker_thread = self._threads.get(worker)
        return "" if worker_thread is None else worker_thread.stacks()

    def attach(self, worker: str, path: str, token: bytes, thread: str) -> None:
        worker_thread = self._threads.get(worker)
        if worker_thread is not None:
            worker_thread.worker.execute(AttachDebugger(worker, path, token, thread))

    def _new(
        self,
        worker: str,
        attempt: int,
        run: Callable[[WorkerThread], None],
        executable: Executable | None = None,
    ) -> WorkerThread:
        """Return a new attempt. The caller starts its thread, which calls `run`."""
        plan = self._plans[worker]
        spec = WorkerSpec(
            plan,
            self._plan.program,
            self._plan.launch_type,
            self._places,
            self._run.state_places(worker, plan.group),
            can_move=self._can_move,
        )
        me = context_of(spec, attempt, self._report)
        thread = threading.Thread(target=lambda: run(new), name=worker, daemon=True)
        interrupt = partial(interrupt_thread, thread)
        new = WorkerThread(
            Worker(
                plan, me, self._report, interrupt, executable=executable, set_up=self._set_up_once
            ),
            thread,
            me,
        )
        self._threads[worker] = new
        context.inherit()
        context.belongs_to(thread, me)
        return new

    def _set_up_once(self, packed: bytes) -> None:
        """Run a setup function for the first worker that comes here, while the other workers wait."""
        with self._set_up_lock:
            if packed not in self._is_set_up:
                payload.set_up(packed)
                self._is_set_up.add(packed)

    def _end(self, worker_thread: WorkerThread, end: Outcome) -> None:
        """Report the end, unless it has been reported. Threads that are left can save nothing more."""
        worker_thread.context.state.fence.close()
        end = replace(end, hung=worker_thread.is_given_up)
        # The worker's own thread and the thread that gives it up may come here at once. Appending is atomic,
        # so exactly one of them finds its own outcome in front.
        worker_thread.ends.append(end)
        if worker_thread.ends[0] is end:
            self._report(Ended(end))

    def _leave_behind(self, worker_thread: WorkerThread) -> None:
        """Report the end although the thread may still run, since no thread can be killed."""
        me = worker_thread.context
        cause = "did not stop in time; its thread was left behind"
        self._end(
            worker_thread, Outcome(me.name, outcome.STOPPED, me.link.phase, me.attempt, cause)
        )


class ScriptThreads(WorkerThreads):
    """Workers that are functions of the script. They are not pickled, and their output isn't captured."""

    def __init__(
        self,
        plan: LaunchPlan,
        run: RunDirectory,
        report: Callable[[Event], None],
        places: Mapping[str, str] | None,
    ) -> None:
        super().__init__(plan, run, report, places)
        self._functions: dict[str, Callable[[], object]] = {}

    def __contains__(self, worker: str) -> bool:
        return worker in self._plans

    def add(self, worker: str, function: Callable[[], object]) -> WorkerPlan:
        """Add a worker, and return its plan for the supervisor."""
        self._functions[worker] = function
        kind = f"thread_worker({getattr(function, '__qualname__', function)})"
        seed = seed_of(self._plan.program, worker)
        self._plans[worker] = WorkerPlan(worker, worker, 0, 1, kind, seed)
        return self._plans[worker]

    def _start(self, worker: str, attempt: int) -> None:
        executable = CallFunction(Code(self._functions[worker]), (), {})
        self._new(worker, attempt, self._run_and_end, executable).thread.start()

    def _kill(self, worker_thread: WorkerThread, at_once: bool) -> None:
        worker_thread.is_given_up = True
        self._leave_behind(worker_thread)

    def close(self) -> None:
        """Wait a moment for the threads, which have all reported their end."""
        self._functions.clear()  # releases the clients in them
        for worker_thread in self._threads.values():
            if worker_thread.thread is not threading.current_thread():
                worker_thread.thread.join(1.0)
        self._threads.clear()

    def _run_and_end(self, worker_thread: WorkerThread) -> None:
        with context.entered(worker_thread.context):
            end = worker_thread.worker.main()
        self._end(worker_thread, end)


def in_a_thread(name: str, function: Callable[..., None], *args: object) -> threading.Thread:
    """Call a function in a new thread. If no new thread can be started, call it in this one."""
    thread = threading.Thread(target=function, args=args, name=name, daemon=True)
    try:
        thread.start()
    except RuntimeError:
        function(*args)
    return thread
