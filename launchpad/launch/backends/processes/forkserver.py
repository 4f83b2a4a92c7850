"""The host: one small process with one thread, which forks the workers and sees them die.

    launcher ══ lifeline, commands, reports ══ host ══ a channel each ══ workers

It has imported what every worker needs, so that a worker is a fork and no boot. It is the workers' parent,
so the kernel tells it how each ended. It lives for as long as the launcher does: when the lifeline ends,
or the launcher's process, it kills every worker's process group, removes the run's sockets and goes.
Should it be killed itself, the `keeper` above it does that.

In a pod the container's first process is the host, and calls `execute_in_order` and `rotate` itself: see
`kubernetes/pod`.

One loop; nothing in it waits but `select`, in `rotate`. What happens after a fork is in `child`.
"""

from __future__ import annotations

import contextlib
import gc
import math
import os
import pickle
import selectors
import signal
import socket
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, NoReturn

from launchpad.events import Ended, ProcessStarted
from launchpad.launch.backends.processes import (
    exit_status,
    os_process,
    subreaper,
    worker_process,
    worker_specs,
)
from launchpad.launch.backends.processes.messages import (
    AddressesChanged,
    ChildExited,
    DumpStacks,
    EndLaunch,
    FromWorker,
    SpecsReady,
)
from launchpad.launch.backends.processes.nonblocking_pipe import NonblockingPipe
from launchpad.launch.backends.processes.worker_process import SpawnArgs
from launchpad.launch.backends.processes.worker_specs import LaunchSpec
from launchpad.launch.devices.out_of_memory import OutOfMemory
from launchpad.launch.supervision.commands import AnnounceGone, KillWorker, StartWorker, StopWorker

_DUMP_S, _DUMP_LIMIT_S = 0.05, 1.0
"""How long a worker that is to be killed has for writing its stacks into its log; and if it has had no
processor meanwhile."""


@dataclass(eq=False)
class ChildProcess:
    """A worker that lives."""

    worker: str
    mark: str
    pid: int
    pipe: NonblockingPipe
    kill_at: float | None = None
    kill_by: float = 0.0


class InChild(BaseException):
    """Raised in the copy that a fork makes: it leaves the host's frames, which are no part of its stack."""

    def __init__(
        self, spawn_args: SpawnArgs, spec: LaunchSpec, open_files: os_process.OpenFiles
    ) -> None:
        super().__init__(spawn_args.worker)
        self.inheritance = spawn_args, spec, open_files


class ForkServer:
    """The loop and what it knows. Only for the main thread of a process that has no other.

    Args:
        file: The briefing.

    Attributes:
        say: Takes what there is to tell the launcher: Born, Said, Gone; Ended where there could be no
          process.
    """

    def __init__(self, file: int) -> None:
        self.say: Callable[[Any], None] = lambda message: None
        self._file = file
        self._index_length = 0
        self._launch_spec: LaunchSpec | None = None
        self._processes: dict[str, ChildProcess] = {}
        self._open_files = os_process.raise_open_files()
        self._is_over = self._is_clean_exit = False
        self._memory = OutOfMemory()
        self._selector = selectors.PollSelector()
        self._sigchld = os_process.sigchld_fd()
        self._selector.register(self._sigchld, selectors.EVENT_READ, self._on_sigchld)
        self._do: dict[type, Callable[[Any], None]] = {
            SpecsReady: self._on_specs_ready,
            StartWorker: self._on_start,
            StopWorker: self._on_request_stop,
            DumpStacks: self._on_dump,
            KillWorker: self._on_kill,
            AnnounceGone: self._send_all,
            AddressesChanged: self._send_all,
            EndLaunch: self._on_end_launch,
        }

    def serve(self, lifeline: int, parent_fd: int | None) -> bool:
        """Obeys a launcher in another process until it is gone; whether it said good-bye.

        Args:
            lifeline: The connection to it.
            parent_fd: A descriptor that becomes readable when its process ends, if there are such.
        """
        launcher = NonblockingPipe(
            lifeline, self._selector, lambda body: self.execute_in_order(pickle.loads(body))
        )
        self.say = launcher.send
        if parent_fd is not None:
            self._selector.register(parent_fd, selectors.EVENT_READ, self._end)
        while not self._is_over and launcher.is_open:
            self.rotate()
        self._end_all()
        launcher.finish()
        return self._is_clean_exit

    def rotate(self, longest_s: float = math.inf) -> None:
        """Waits until something happens, no longer than that, and does what is to be done about it."""
        due = [
            process.kill_at for process in self._processes.values() if process.kill_at is not None
        ]
        wait_s = min(longest_s, max(0.0, min(due, default=math.inf) - time.monotonic()))
        for key, events in self._selector.select(None if wait_s == math.inf else wait_s):
            key.data(events)
        self._kill_due()

    # What the launcher wants.

    def execute_in_order(self, message: Any) -> None:
        """Does what a command says. In a worker's new process it raises Newborn."""
        self._do[type(message)](message)

    def _on_specs_ready(self, hello: SpecsReady) -> None:
        self._index_length = hello.index_length
        self._launch_spec = worker_specs.load(self._file, hello.index_length)
        gc.freeze()  # what is here now is never looked at by a worker's collector, so its pages stay shared

    def _on_start(self, start: StartWorker) -> None:
        try:
            process = self._fork(start)
        except OSError as error:
            attempt = exit_status.ProcessAttempt(start.worker, start.attempt)
            self.say(Ended(exit_status.not_started(attempt, error)))
            return
        self._processes[start.worker] = process
        self.say(ProcessStarted(start.worker, start.attempt, process.pid))

    def _on_request_stop(self, ask: StopWorker) -> None:
        self._send(ask.worker, ask)

    def _on_dump(self, dump: DumpStacks) -> None:
        process = self._processes.get(dump.worker)
        if process is not None:
            with contextlib.suppress(OSError):
                os.kill(process.pid, os_process.SHOW_STACKS)

    def _on_kill(self, kill: KillWorker) -> None:
        process = self._processes.get(kill.worker)
        if process is not None and kill.at_once:
            os_process.kill_group(process.pid)
        elif process is not None:
            now = time.monotonic()
            process.kill_at, process.kill_by = now + _DUMP_S, now + _DUMP_LIMIT_S
            with contextlib.suppress(OSError):
                os.kill(process.pid, signal.SIGQUIT)

    def _send_all(self, message: AnnounceGone | AddressesChanged) -> None:
        for worker in self._processes:
            self._send(worker, message)

    def _on_end_launch(self, end_launch: EndLaunch) -> None:
        self._is_over = self._is_clean_exit = True

    def _end(self, events: int) -> None:
        self._is_over = True

    # Workers: how they begin, what they say, how they end.

    def _fork(self, start: StartWorker) -> ChildProcess:
        ours, theirs = (end.detach() for end in socket.socketpair())
        try:
            pid = os.fork()
        except OSError:
            os.close(ours)
            os.close(theirs)
            raise
        if pid == 0:
            raise self._in_child(theirs, start)
        os.close(theirs)
        os_process.set_process_group(pid)
        pipe = NonblockingPipe(ours, self._selector, partial(self._relay, start.worker))
        return ChildProcess(
            start.worker, worker_process.mark(start.worker, start.attempt), pid, pipe
        )

    def _in_child(self, control: int, start: StartWorker) -> InChild:
        assert self._launch_spec is not None
        spawn_args = SpawnArgs(control, self._file, self._index_length, start.worker, start.attempt)
        return InChild(spawn_args, self._launch_spec, self._open_files)

    def _send(self, worker: str, message: Any) -> None:
        process = self._processes.get(worker)
        if process is not None:
            process.pipe.send(message)

    def _relay(self, worker: str, body: bytes) -> None:
        self.say(FromWorker(worker, body))

    def _on_sigchld(self, events: int) -> None:
        with contextlib.suppress(BlockingIOError):
            os.read(self._sigchld, 4096)
        self._reap()

    def _reap(self, *, wait: bool = False) -> bool:
        """Buries the dead; whether there were any."""
        processes = {process.pid: process for process in self._processes.values()}
        dead = list(os_process.ended_children(wait=wait))
        for pid, status, peak_bytes in dead:
            if pid in processes:  # if not, it was adopted
                self._on_exit(processes[pid], status, peak_bytes)
        return bool(dead)

    def _on_exit(self, process: ChildProcess, status: int, peak_bytes: int) -> None:
        process.pipe.drain()
        process.pipe.close()
        del self._processes[process.worker]
        self._end_orphans_of(process)
        out_of_memory = self._memory.has_happened()
        self.say(ChildExited(process.worker, status, peak_bytes, out_of_memory))

    def _end_orphans_of(self, process: ChildProcess) -> None:
        """Ends what it has started and what had left its group: with its death that became ours."""
        workers = {other.pid for other in self._processes.values()}
        for pid in set(os_process.children()) - workers:
            if os_process.has_mark(pid, process.mark):
                os_process.kill_descendants(pid)
                os_process.kill_group(pid)

    def _kill_due(self) -> None:
        now = time.monotonic()
        for process in self._processes.values():
            if process.kill_at is None or process.kill_at > now:
                continue
            if now < process.kill_by and os_process.is_pending(process.pid, signal.SIGQUIT):
                process.kill_at = min(now + _DUMP_S, process.kill_by)
            else:
                process.kill_at = None
                os_process.kill_group(process.pid)

    def _end_all(self) -> None:
        """Kills until no child is left; what loses its parent meanwhile becomes a child."""
        ended = True
        while ended:
            for pid in {
                *os_process.children(),
                *(process.pid for process in self._processes.values()),
            }:
                os_process.kill_group(pid)
            ended = self._reap(wait=True)


def main(lifeline: int, file: int, parent_fd: int | None, runtime: str) -> NoReturn:
    """The host's process."""
    os_process.become_subreaper()
    os_process.name_process("host")
    gc.disable()
    try:
        is_clean_exit = ForkServer(file).serve(lifeline, parent_fd)
    except InChild as in_child:
        inheritance = in_child.inheritance
    else:
        _leave(is_clean_exit, runtime)
    worker_process.forked(*inheritance)


def _leave(is_clean_exit: bool, runtime: str) -> NoReturn:
    """Tidies up if the launcher cannot do it any more."""
    if not is_clean_exit:
        subreaper.clean_up(runtime)
    os._exit(0)
