"""The forkserver: one small process with one thread, which forks the workers and reaps them.

    launcher ══ lifeline, commands, reports ══ forkserver ══ a socket pair each ══ workers

The forkserver has imported the modules of launchpad that workers need, and the modules that the user has
listed in `preload`. So a worker is a fork, and needs no new interpreter. It is the workers' parent, so the
kernel tells it how each worker ended. It runs as long as the launcher: when the lifeline or the launcher's
process ends, the forkserver kills every worker's process group, removes the run's sockets and exits. If the
forkserver itself is killed, the `subreaper` above it does all this.

In a pod the container's first process is the forkserver, and calls `execute_in_order` and `rotate` itself:
see `kubernetes/pod`.

There is one loop, and it waits only in the `select` of `rotate`. After a fork, the new process goes on in
`worker_process`.

A fork copies all memory, but only one thread: the thread that forks. So a module that starts threads or opens
a GPU when it is imported must not be imported before the fork: `import_all` refuses it. OpenBLAS starts its
threads when numpy is imported, unless it may have only one thread. So until after the fork, it may have only
one.
"""

from __future__ import annotations

import contextlib
import gc
import hmac  # noqa: F401  for each worker, which checks tokens with it
import importlib
import math
import os
import pickle
import resource
import selectors
import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from launchpad.courier.light_dataclass import dataclass
from launchpad.courier.security import private_directory
from launchpad.courier.transport import stream_socket
from launchpad.launch.backends.processes import (
    exit_status,
    messages,
    os_process,
    worker_process,
)
from launchpad.launch.backends.processes.worker_specs import SpecFile
from launchpad.launch.devices.out_of_memory import OutOfMemory
from launchpad.runtime import commands
from launchpad.runtime.events import Ended, ProcessStarted

_DUMP_S = 0.05
_DUMP_LIMIT_S = 1.0
"""Seconds that a worker has for writing its stacks into its log before it is killed. If the kernel has not
scheduled the worker in that time, it has up to the second number."""

_GPU_DEVICES = ("/dev/nvidia", "/dev/kfd", "/dev/dri/render")
_STARTS_THREADS = ("OPENBLAS_NUM_THREADS", "GOTO_NUM_THREADS", "NUMEXPR_NUM_THREADS")
_OPENMP = "OMP_NUM_THREADS"

_THREADS_END_S = 0.5
"""Seconds for which threads that were joined, or are about to end, may still exist."""

_LOOK_S = 0.002

sigchld_handler: Any = signal.SIG_DFL
"""The SIGCHLD handler that preloaded modules have set. Workers get it; the forkserver has its own."""

is_importing = False
"""True while this process imports the user's modules for its workers. Launches in them are refused."""


@dataclass(eq=False)
class ChildProcess:
    """The process of a running worker."""

    worker: str
    mark: str
    pid: int
    pipe: messages.NonblockingPipe
    kill_at: float = math.inf
    kill_by: float = 0.0


class InChild(BaseException):
    """Raised in the copy that a fork makes, so that a worker's stack doesn't contain the forkserver's frames.

    Its `args` are the arguments of `worker_process.become_worker`.
    """


class ForkServer:
    """The loop and its state. Use it in the main thread of a process that has no other threads.

    Args:
        file: The descriptor of the file with the workers' specs.

    Attributes:
        say: Called with each message for the launcher: ProcessStarted, FromWorker, Garbled, ChildExited, and
            Ended if a worker could not get a process.
    """

    def __init__(self, file: int) -> None:
        self.say: Callable[[Any], None] = lambda message: None
        self._file = file
        self._specs: SpecFile | None = None
        self._processes: dict[str, ChildProcess] = {}
        self._cannot_fork = ""
        self._is_over = False
        self._memory = OutOfMemory()
        # The forkserver raises its limit on open files. Workers get the limits as they were before.
        self._open_files = resource.getrlimit(resource.RLIMIT_NOFILE)
        with contextlib.suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (self._open_files[1], self._open_files[1]))
        # The read end becomes readable when a child ends.
        self._sigchld, write_end = os.pipe()
        os.set_blocking(self._sigchld, False)
        os.set_blocking(write_end, False)
        signal.signal(signal.SIGCHLD, lambda number, frame: None)
        signal.set_wakeup_fd(write_end, warn_on_full_buffer=False)
        self._selector = selectors.PollSelector()
        self._selector.register(self._sigchld, selectors.EVENT_READ, self._reap)

    def serve(self, lifeline: int, parent_fd: int | None) -> bool:
        """Serve a launcher in another process until it ends, and return True if it sent EndLaunch.

        Args:
            lifeline: The descriptor of the connection to the launcher.
            parent_fd: A descriptor that becomes readable when the launcher's process ends; None where the
                system has no such descriptors.
        """
        launcher = messages.NonblockingPipe(
            lifeline, self._selector, lambda body: self.execute_in_order(pickle.loads(body))
        )
        self.say = launcher.send
        launcher_ended: list[int] = []
        if parent_fd is not None:
            self._selector.register(parent_fd, selectors.EVENT_READ, launcher_ended.append)
        while not self._is_over and not launcher_ended and launcher.is_open:
            self.rotate()
        # Kill until no child is left. A process that loses its parent during this loop becomes a child, too.
        reaped = True
        while reaped:
            workers = {process.pid for process in self._processes.values()}
            for pid in workers.union(os_process.children()):
                os_process.kill_group(pid)
            reaped = self._reap(wait=True)
        launcher.finish()
        return self._is_over

    def rotate(self, longest_s: float = math.inf) -> None:
        """Wait up to `longest_s` for an event, and handle it. Then kill workers whose time is up."""
        next_kill_at = min(
            (process.kill_at for process in self._processes.values()), default=math.inf
        )
        wait_s = min(longest_s, max(0.0, next_kill_at - time.monotonic()))
        for key, events in self._selector.select(None if wait_s == math.inf else wait_s):
            key.data(events)
        now = time.monotonic()
        for process in self._processes.values():
            if process.kill_at > now:
                continue
            if now < process.kill_by and os_process.is_pending(process.pid, signal.SIGQUIT):
                process.kill_at = min(now + _DUMP_S, process.kill_by)
            else:
                process.kill_at = math.inf
                os_process.kill_group(process.pid)

    def execute_in_order(self, message: Any) -> None:
        """Execute a command of the launcher. In a worker's new process this raises InChild."""
        processes = self._processes
        match message:
            case messages.SpecsReady(index_length, log):
                if log:
                    with contextlib.suppress(OSError), open(log, "ab") as file:
                        os.dup2(file.fileno(), 1)
                        os.dup2(file.fileno(), 2)
                self._specs = SpecFile(self._file, index_length)
                spec = self._specs.launch
                for module in spec.modules:
                    importlib.import_module(module)
                # A worker looks up users and groups before it makes a socket. Do that once for all workers.
                with contextlib.suppress(OSError):
                    private_directory.check_unchangeable(Path(min(spec.stacks.values())).parent)
                if spec.preload:
                    self._cannot_fork = import_all(spec.preload, spec.preload_threads)
                # A worker's garbage collector never looks at the objects that exist now, so their pages stay
                # shared.
                gc.freeze()
            case commands.StartWorker():
                self._start(message)
            case (
                commands.StopWorker(worker)
                | commands.AnnounceWatermarks(worker)
                | commands.AttachDebugger(worker)
            ):
                if worker in processes:
                    processes[worker].pipe.send(message)
            case messages.DumpStacks(worker) if worker in processes:
                with contextlib.suppress(OSError):
                    os.kill(processes[worker].pid, os_process.SHOW_STACKS)
            case commands.KillWorker(worker, at_once=True) if worker in processes:
                os_process.kill_group(processes[worker].pid)
            case commands.KillWorker(worker) if worker in processes:
                now = time.monotonic()
                process = processes[worker]
                process.kill_at = now + _DUMP_S
                process.kill_by = now + _DUMP_LIMIT_S
                with contextlib.suppress(OSError):
                    os.kill(process.pid, signal.SIGQUIT)
            case commands.AnnounceGone(to=worker) if worker:
                if worker in processes:
                    processes[worker].pipe.send(message)
            case commands.AnnounceGone() | commands.AddressesChanged():
                for process in processes.values():
                    process.pipe.send(message)
            case messages.EndLaunch():
                self._is_over = True

    def _start(self, start: commands.StartWorker) -> None:
        if self._cannot_fork:
            self.say(
                Ended(exit_status.cannot_start(start.worker, start.attempt, self._cannot_fork))
            )
            return
        try:
            ours, theirs = (end.detach() for end in stream_socket.blocking_pair())
            try:
                pid = os.fork()
            except OSError:
                os.close(ours)
                os.close(theirs)
                raise
            if pid == 0:
                raise InChild(self._specs, start, theirs, self._open_files, sigchld_handler)
            os.close(theirs)
            os_process.set_process_group(pid)
            pipe = messages.NonblockingPipe(
                ours,
                self._selector,
                lambda body: self.say(messages.FromWorker(start.worker, body)),
                lambda: self.say(messages.Garbled(start.worker)),
            )
        except OSError as error:
            self.say(Ended(exit_status.not_started(start.worker, start.attempt, error)))
            return
        mark = worker_process.mark(start.worker, start.attempt)
        self._processes[start.worker] = ChildProcess(start.worker, mark, pid, pipe)
        self.say(ProcessStarted(start.worker, start.attempt, pid))

    def _reap(self, events: int = 0, *, wait: bool = False) -> bool:
        """Reap children that have ended, and report the workers among them. Return True if any had ended."""
        with contextlib.suppress(BlockingIOError):
            os.read(self._sigchld, 4096)
        processes = {process.pid: process for process in self._processes.values()}
        children = list(os_process.ended_children(wait=wait))
        for child in children:
            process = processes.get(child.pid)
            if process is None:
                # This child was adopted, and is no worker.
                continue
            process.pipe.drain()
            process.pipe.close()
            del self._processes[process.worker]
            # Processes that the worker had started, even outside its group, became our children when it
            # ended.
            running = {worker.pid for worker in self._processes.values()}
            for orphan in set(os_process.children()) - running:
                if os_process.has_mark(orphan, process.mark):
                    os_process.kill_descendants(orphan)
                    os_process.kill_group(orphan)
            out_of_memory = self._memory.has_happened()
            self.say(
                messages.ChildExited(process.worker, child.status, child.peak_bytes, out_of_memory)
            )
        return bool(children)


def import_all(modules: Sequence[str], threads: int) -> str:
    """Import the modules in order. Return why workers can't be forked any more; empty if they can be.

    Args:
        threads: The number of threads that OpenMP will use in workers.
    """
    variables = dict.fromkeys(_STARTS_THREADS, "1") | {_OPENMP: str(threads)}
    with _environment(variables), _importing(), _signals_as_in_any_process():
        for module in modules:
            try:
                importlib.import_module(module)
            except BaseException as error:
                return f"preload={module!r} cannot be imported: {type(error).__name__}: {error}"
            names = _lasting_threads()
            if names:
                return (
                    f"preload={module!r} starts threads when it is imported ({', '.join(names)}), which no"
                    " forked process would have. Leave it out: each worker then imports it for itself"
                )
            device = _open_gpu()
            if device:
                return (
                    f"preload={module!r} opens {device} when it is imported, which a forked process cannot"
                    " use. Leave it out: each worker then imports it for itself"
                )
    return ""


@contextlib.contextmanager
def _importing() -> Iterator[None]:
    global is_importing
    is_importing = True
    try:
        yield
    finally:
        is_importing = False


@contextlib.contextmanager
def _signals_as_in_any_process() -> Iterator[None]:
    """Suspend the forkserver's own handling of SIGCHLD, because the modules may set a handler themselves."""
    global sigchld_handler
    own_mask = signal.pthread_sigmask(signal.SIG_BLOCK, [])
    own_handler = signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    own_wakeup_fd = signal.set_wakeup_fd(-1)
    try:
        yield
    finally:
        handler = signal.signal(signal.SIGCHLD, own_handler)
        # None means that the handler was not set from Python.
        sigchld_handler = signal.SIG_DFL if handler is None else handler
        signal.set_wakeup_fd(own_wakeup_fd, warn_on_full_buffer=False)
        signal.pthread_sigmask(signal.SIG_SETMASK, own_mask)


@contextlib.contextmanager
def _environment(variables: dict[str, str]) -> Iterator[None]:
    before = {name: os.environ.get(name) for name in variables}
    os.environ.update(variables)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


def _lasting_threads() -> list[str]:
    """Return the names of threads that don't end within a moment.

    The system still counts a thread for some microseconds after it was joined.
    """
    until = time.monotonic() + _THREADS_END_S
    names = _other_threads()
    while names and time.monotonic() < until:
        time.sleep(_LOOK_S)
        names = _other_threads()
    return names


def _other_threads() -> list[str]:
    """Return the names of all threads but the main one. Threads of C code are only counted."""
    names = [
        thread.name for thread in threading.enumerate() if thread is not threading.main_thread()
    ]
    with contextlib.suppress(OSError):  # only Linux has it
        in_c = len(os.listdir("/proc/self/task")) - 1 - len(names)
        names += [f"{in_c} in C"] if in_c > 0 else []
    return names


def _open_gpu() -> str:
    """Return a GPU's device that this process has open; empty if it has opened no GPU."""
    with contextlib.suppress(OSError):
        for fd in os.listdir("/proc/self/fd"):
            with contextlib.suppress(OSError):
                device = os.readlink(f"/proc/self/fd/{fd}")
                if device.startswith(_GPU_DEVICES):
                    return device
    return ""


def main(lifeline: int, file: int, parent_fd: int | None) -> bool:
    """Run the forkserver, and return True if its launcher ended it.

    In a process that the forkserver forks, run the worker instead, and never return.
    """
    os_process.become_subreaper()
    os_process.name_process("forkserver")
    gc.disable()
    try:
        return ForkServer(file).serve(lifeline, parent_fd)
    except InChild as in_child:
        inheritance = in_child.args
    worker_process.become_worker(*inheritance)
