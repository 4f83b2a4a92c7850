"""A worker host: it starts one worker on its node, and passes on the worker's reports.

    launcher ── open, execute_in_order ──▶ worker host ══ lifeline ══ subreaper ── forkserver ── worker
             ◀── next_update: log lines and reports ──

The host runs in a process that another system has started and may end: a Ray actor, or a task of Spark's. The
worker is a process of its own, as in `local_mp`. So the kernel says how the worker ended, a worker that hangs
can be killed, and a restart needs no new host. When the host's process ends, for whatever reason, the
lifeline ends, and with it the worker and all that the worker has started.

In a pod, no process is between host and worker. Here there are two, the subreaper and the forkserver, for
these reasons:

1. The host doesn't fork workers itself. Other threads run in it, Ray's or courier's, and if one of them held
   a lock during the fork, that lock would stay locked in the copy. So the forkserver, which has a single
   thread, forks them.
2. When a Ray worker ends by itself, for example because its driver has died, it first kills its direct
   children (`kill_child_processes_on_worker_exit`), and no other processes. If the forkserver were that
   child, it would end with the actor, and leave behind the sockets and all processes that had left the worker
   by a double fork. So the direct child is the subreaper. If Ray kills the subreaper, the forkserver notices
   the actor's end and ends all that is below it. If the forkserver is killed, the subreaper does so.

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
from launchpad.launch.backends.processes.subreaper_server_handle import SubreaperServer
from launchpad.launch.backends.remote import device_claims, lease
from launchpad.launch.devices.device import Device
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

_MODULES = (
    "encodings.idna",
    "launchpad.courier.transport.tcp",
    "launchpad.courier.transport.tls_context",
)
"""Modules with which workers on several hosts reach each other. Forkservers import them before they fork."""

_POLL_S = 0.05
"""Seconds between two reads of the log."""

_MAX_LOG_BYTES = 4 << 20
"""The most bytes of the log that one update carries."""


@dataclass(frozen=True)
class HostReady:
    """The place of a host that is ready: its node and its IP address."""

    node: str
    ip: str


@dataclass(frozen=True)
class HostSpec:
    """All that a host needs to start its worker, except secrets and large buffers, which are sent separately.

    Attributes:
        worker: The worker's spec. Its plan lacks the payload's buffers, and the host completes its endpoints.
        launcher: The launching script.
        modules: Modules of launchpad that the worker needs.
        state: The folder or URL in which all workers save. If it is empty, they save with the run's logs.
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
        log: The output of attempt `attempt` since the last update.
        reports: Events, as in `launchpad.runtime.events`, in order.
    """

    attempt: int
    log: bytes
    reports: Sequence[Any]


class WorkerHost:
    """A host that starts one worker, any number of times, and passes on commands and reports.

    Args:
        launcher: The launcher's `launcher_info.versions`, as plain text, because all else may differ here.
        remedy: The error's advice if this process has other versions.
        server: The server that forks the subreaper, if this process has several hosts.

    Raises:
        LaunchError: this process has other versions.
    """

    def __init__(
        self, launcher: Mapping[str, str], remedy: str, server: SubreaperServer | None = None
    ) -> None:
        differs = launcher_info.differences(launcher)
        if differs:
            raise LaunchError(
                f"node {os.uname().nodename} is not like the launcher: {differs}. {remedy}"
            )
        self._server = server
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
        self._is_cut_off = False

    async def open_at(
        self,
        where: HostReady,
        gpus: tuple[str, ...],
        spec: HostSpec,
        keys: RunSecrets,
        buffers: Sequence[LargeBuffer] = (),
        devices: Sequence[Device] = (),
    ) -> HostReady:
        """Prepare the node, and return `where` when it is ready.

        Args:
            where: The place at which others reach this host.
            gpus: The devices of the worker.
            spec: The worker, and what else the host must know about it.
            keys: The secrets of the run.
            buffers: The large buffers of the worker's payload.
            devices: The GPUs of the node, if workers have to claim theirs.

        Raises:
            LaunchError: the node cannot run the worker; the text says why.
        """
        self._refuse_if_ended()
        plan = spec.worker.plan
        launcher = spec.launcher
        sys.path += [p for p in launcher.path if p not in sys.path and os.path.isdir(p)]
        host = f"[{where.ip}]" if ":" in where.ip else where.ip
        if spec.state and not is_url(spec.state):
            is_held = await asyncio.to_thread(lock.is_held_by, spec.state, spec.run_id)
            self._refuse_if_ended()
            if not is_held:
                raise LaunchError(
                    f"node {os.uname().nodename} does not have the launcher's folder state={spec.state!r}:"
                    " give one on a disk that all nodes share, or a URL"
                )
        self._run = RunDirectory.create(spec.worker.program, plan.endpoints)
        self._worker = plan.name
        program = spec.worker.program
        own = replace(plan, gpus=gpus, payload=replace(plan.payload, buffers=tuple(buffers)))
        if gpus and devices:
            self._run.claim = await asyncio.to_thread(
                device_claims.claim, self._run.run_id, spec.run_id, program, own, devices
            )
            self._refuse_if_ended()
        endpoints = {}
        for name, endpoint in plan.endpoints.items():
            if endpoint.startswith("tcp:"):
                endpoints[name] = f"unix:{self._run.runtime}/{socket_name(name)}"
            else:
                port = portpicker.pick_unused_port()
                self._ports[name] = f"{host}:{port}"
                endpoints[name] = self._ports[name]
        loop = asyncio.get_running_loop()

        def report(event: Any) -> None:  # called in another thread
            # If the loop is closed, the launcher asks for no more updates.
            with contextlib.suppress(RuntimeError):
                loop.call_soon_threadsafe(self._add_report, event)

        own = replace(own, endpoints=endpoints)
        launch_type = spec.worker.launch_type
        self._workers = create_process_workers(
            LaunchPlan(program, launch_type, (own,), modules=(*spec.modules, *_MODULES)),
            [replace(spec.worker, plan=own, endpoints=endpoints, listens_at=f"tcp:{host}:0")],
            self._run,
            report,
            keys.entries(),
            launcher=launcher,
            server=self._server,
        )
        self._run.make_runtime()
        return where

    def _refuse_if_ended(self) -> None:
        """Raise LaunchError if this host was ended while it was being opened. It may hold nothing then."""
        if self._closing is not None:
            if self._run is not None:
                self._run.remove()
            raise LaunchError("it was ended before it was ready")

    async def execute_in_order(self, number: int, command: Command | AddressesChanged) -> None:
        """Execute a command. A command that arrives too early waits for the ones before it."""
        self._early[number] = command
        while self._n_executed in self._early:
            next_command = self._early.pop(self._n_executed)
            self._n_executed += 1
            self._execute(next_command)

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
        """Wait until there is something to report, and return it.

        The end of an attempt is reported after all that the attempt has printed.

        Raises:
            LaunchError: the host was closed, and has nothing more to report; or its lease has ended.
        """
        while True:
            if self._is_cut_off:
                raise LaunchError(lease.ENDED)
            self._has_update.clear()
            tail = self._tail
            log = bytearray()
            while tail is not None and len(log) < _MAX_LOG_BYTES:
                lines = tail.lines()
                if not lines:
                    break
                log += b"".join(line + b"\n" for line in lines)
            if tail is not None and tail.has_more():
                return HostUpdate(self._attempt, bytes(log), [])
            reports = self._reports
            self._reports = []
            if tail is not None and any(isinstance(report, Ended) for report in reports):
                log += tail.remainder()
            if log or reports:
                return HostUpdate(self._attempt, bytes(log), reports)
            if self._closing is not None and self._closing.done():
                raise LaunchError("it was ended")
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._has_update.wait(), _POLL_S)

    def end_now(self) -> None:
        """End the worker because the lease has ended. Callable from any thread; may take seconds.

        The launcher isn't told how the worker ended, because for the launcher it was lost before.
        """
        self._is_cut_off = True
        if self._workers is not None:
            # This comes first, since it waits for nothing: `close` may wait for a forkserver that is stuck.
            self._workers.kill_forkserver()
            self._workers.close()

    async def close(self) -> None:
        """End what still runs, and leave nothing on the node. A second call waits for the first."""
        if self._closing is None:
            self._closing = asyncio.ensure_future(self._close())
        await asyncio.shield(self._closing)

    async def _close(self) -> None:
        # Remove the directory first. Once the subreaper knows that the launch ends, it leaves the directory
        # to this process, which may be killed at any moment.
        if self._run is not None:
            self._run.remove()
        if self._workers is not None:
            await asyncio.to_thread(self._workers.close)
        if self._run is not None:
            # The launcher has all of the logs.
            shutil.rmtree(self._run.logs, ignore_errors=True)
            # Remove what a killed launcher on this node may have left.
            locations.sweep(self._run.runtime.parent)

    def _add_report(self, report: Any) -> None:
        self._reports.append(report)
        self._has_update.set()
