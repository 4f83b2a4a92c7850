"""A worker host: it starts one worker on its node, and passes on what that reports.

    launcher ── open, execute_in_order ──▶ worker host ══ lifeline ══ subreaper ── forkserver ── worker
             ◀── next_update: log lines and reports ──

It is in a process that another system has started there and may end: a Ray actor, a task of Spark's. The
worker is a process of its own, as in `local_mp`: so the kernel says how it ended, what hangs in it can be
ended, and a restart takes no new host. When the host's process ends, for whatever reason, the lifeline ends,
and the worker with all that it has started.

Why two processes stand between host and worker, where a pod has none:

1. The host does not fork workers itself: other threads run in it, Ray's or courier's, and a lock that one of
   them holds would be held for ever in the copy. So there is the forkserver, which has a single thread.
2. A Ray worker that ends by itself, as when its driver has died, kills its direct children on the way
   (`kill_child_processes_on_worker_exit`), and no others. Were the forkserver that child, it would be gone
   with the actor: what had left the worker by a double fork, and the sockets, would stay. So the child is the
   subreaper. If Ray kills that, the forkserver sees the actor's end and ends all that is below it; if it is
   the forkserver that is killed, the subreaper does.

All methods run in one event loop, and none waits for the worker. Calls may arrive in any order, so the
launcher numbers the commands whose order matters.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import portpicker

from launchpad.errors import LaunchError
from launchpad.launch.backends import launcher_info
from launchpad.launch.backends.launcher_info import LauncherInfo, RunSecrets
from launchpad.launch.backends.processes.backend import ProcessWorkers, create_process_workers
from launchpad.launch.large_buffers import LargeBuffer
from launchpad.launch.logs.tail import Tail
from launchpad.launch.plan import LaunchPlan
from launchpad.launch.rundir import locations
from launchpad.launch.rundir.directory import RunDirectory, socket_name
from launchpad.launch.worker.spec import WorkerSpec
from launchpad.runtime.commands import AddressesChanged, Command, StartWorker
from launchpad.runtime.events import Bound, Ended
from launchpad.state import lock
from launchpad.state.places import is_url

_POLL_S = 0.05
"""How often the log is looked at."""

_MAX_LOG_BYTES = 4 << 20
"""How much of the log goes at once."""


@dataclass(frozen=True)
class HostReady:
    """The host is ready: where it is."""

    node: str
    ip: str


@dataclass(frozen=True)
class HostSpec:
    """All that a host must know in order to start its worker; the secrets and large buffers come apart.

    Attributes:
        worker: Its plan lacks the buffers of its payload, and has the endpoints only in part.
        launcher: The launching script.
        modules: Modules of ours that the worker needs.
        state: The folder or URL in which all workers save; empty: with the run's logs.
    """

    worker: WorkerSpec
    launcher: LauncherInfo
    run_id: str
    modules: tuple[str, ...] = ()
    state: str = ""


@dataclass(frozen=True)
class HostUpdate:
    """A report of a host: what its worker printed, and the events that came after it.

    Attributes:
        log: What attempt `attempt` has printed since the last update.
        reports: Events, as in `launchpad.runtime.events`, in order.
    """

    attempt: int
    log: bytes
    reports: Sequence[Any]


class WorkerHost:
    """Starts one worker, again and again if need be, and passes on commands and reports.

    Args:
        launcher: The launcher's `launcher_info.versions`: plain text, as nothing else may be the same here.
        remedy: What to do where they are others.

    Raises:
        LaunchError: here they are others.
    """

    def __init__(self, launcher: Mapping[str, str], remedy: str) -> None:
        if differs := launcher_info.differences(launcher):
            raise LaunchError(
                f"node {os.uname().nodename} is not like the launcher: {differs}. {remedy}"
            )
        self._worker = ""
        self._attempt = 0
        self._workers: ProcessWorkers | None = None
        self._run: RunDirectory | None = None
        self._tail: Tail | None = None
        self._reports: list[Any] = []
        self._ports: dict[str, str] = {}
        self._has_update = asyncio.Event()
        self._early: dict[int, Command | AddressesChanged] = {}
        self._n_executed = 0
        self._closing: asyncio.Future[None] | None = None

    async def open_at(
        self,
        where: HostReady,
        gpus: tuple[str, ...],
        spec: HostSpec,
        keys: RunSecrets,
        buffers: Sequence[LargeBuffer] = (),
    ) -> HostReady:
        """Prepares the node, or raises LaunchError, whose text says why it cannot.

        Args:
            where: Where this is, as others are to see it.
            gpus: The devices of the worker.
            buffers: Those of its payload.
        """
        planned = spec.worker.plan
        launcher = spec.launcher
        sys.path += [p for p in launcher.path if p not in sys.path and os.path.isdir(p)]
        host = f"[{where.ip}]" if ":" in where.ip else where.ip
        if spec.state and not is_url(spec.state):
            is_held = await asyncio.to_thread(lock.is_held_by, spec.state, spec.run_id)
            if self._closing is not None:
                raise LaunchError("it was ended before it was ready")
            if not is_held:
                raise LaunchError(
                    f"node {os.uname().nodename} does not have the launcher's folder state={spec.state!r}:"
                    " give one on a disk that all nodes share, or a URL"
                )
        self._run = RunDirectory.create(spec.worker.program, planned.endpoints)
        self._worker = planned.name
        endpoints = {}
        for name, endpoint in planned.endpoints.items():
            if endpoint.startswith("tcp:"):
                endpoints[name] = f"unix:{self._run.runtime}/{socket_name(name)}"
            else:
                port = portpicker.pick_unused_port()
                self._ports[name] = endpoints[name] = f"{host}:{port}"
        loop = asyncio.get_running_loop()

        def report(event: Any) -> None:  # called in another thread
            with contextlib.suppress(RuntimeError):  # the loop is closed: nothing asks any more
                loop.call_soon_threadsafe(self._add_report, event)

        payload = replace(planned.payload, buffers=tuple(buffers))
        own = replace(planned, endpoints=endpoints, gpus=gpus, payload=payload)
        program = spec.worker.program
        launch_type = spec.worker.launch_type
        self._workers = create_process_workers(
            LaunchPlan(program, launch_type, (own,), modules=spec.modules),
            [replace(spec.worker, plan=own, endpoints=endpoints, listens_at=f"tcp:{host}:0")],
            self._run,
            report,
            keys.entries(),
            launcher=launcher,
        )
        self._run.make_runtime()
        return where

    async def execute_in_order(self, number: int, command: Command | AddressesChanged) -> None:
        """Execute a command; one that comes too early waits for those before it."""
        self._early[number] = command
        while (due := self._early.pop(self._n_executed, None)) is not None:
            self._n_executed += 1
            self._execute(due)

    def _execute(self, command: Command | AddressesChanged) -> None:
        assert self._workers is not None
        if isinstance(command, AddressesChanged):
            self._workers.send(command)
            return
        if isinstance(command, StartWorker):
            assert self._run is not None
            self._attempt = command.attempt
            self._tail = Tail(self._run.log(self._worker, command.attempt))
            for address, endpoint in self._ports.items():
                self._add_report(Bound(self._worker, command.attempt, address, (endpoint,)))
        self._workers.execute(command)

    async def stacks(self) -> str:
        assert self._workers is not None
        return await asyncio.to_thread(self._workers.stacks, self._worker)

    async def next_update(self) -> HostUpdate:
        """Waits until there is something to report. An end comes after all that was printed until then.

        Raises:
            LaunchError: the host was closed, and has nothing more.
        """
        while True:
            self._has_update.clear()
            tail, log = self._tail, bytearray()
            while tail is not None and len(log) < _MAX_LOG_BYTES and (lines := tail.lines()):
                log += b"".join(line + b"\n" for line in lines)
            if tail is not None and tail.has_more():
                return HostUpdate(self._attempt, bytes(log), [])
            reports, self._reports = self._reports, []
            if tail is not None and any(isinstance(report, Ended) for report in reports):
                log += tail.remainder()
            if log or reports:
                return HostUpdate(self._attempt, bytes(log), reports)
            if self._closing is not None and self._closing.done():
                raise LaunchError("it was ended")
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._has_update.wait(), _POLL_S)

    async def close(self) -> None:
        """Ends what still runs, and leaves nothing on the node. Once; called again, it waits for that."""
        if self._closing is None:
            self._closing = asyncio.ensure_future(self._close())
        await asyncio.shield(self._closing)

    async def _close(self) -> None:
        # First what the subreaper removes if this is killed: told that the launch ends, it leaves that to us.
        if self._run is not None:
            self._run.remove()
        if self._workers is not None:
            await asyncio.to_thread(self._workers.close)
        if self._run is not None:
            shutil.rmtree(self._run.logs, ignore_errors=True)  # the launcher has it all
            locations.sweep(self._run.runtime.parent)  # of a launcher on this node that was killed

    def _add_report(self, report: Any) -> None:
        self._reports.append(report)
        self._has_update.set()
