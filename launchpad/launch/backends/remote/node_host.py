"""The process on a node that the launcher has connected with: one worker host for each worker placed there.

    launcher ── calls: open, execute_in_order, next_update … ──▶ NodeHost ── worker hosts ══ workers
             ◀── their answers ─────────────────────────────────────┘

The connection is a lifeline. If the launcher is gone, the node host ends its workers, and then itself. If the
process of the node host is killed, the lifelines of its worker hosts end the workers.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
import os
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from launchpad.courier.own_threads import OwnThread
from launchpad.errors import LaunchError
from launchpad.launch.backends.launcher_info import RunSecrets
from launchpad.launch.backends.processes.subreaper_server_handle import SubreaperServer
from launchpad.launch.backends.remote import lease, node_connection, reachability
from launchpad.launch.backends.remote.lease import HostLease
from launchpad.launch.backends.remote.node_connection import (
    Answer,
    HostCall,
    NewBuffer,
    SentBuffer,
)
from launchpad.launch.backends.remote.parts import Part, PartJoiner, SendQueue
from launchpad.launch.backends.remote.reachability import OpenPort
from launchpad.launch.backends.remote.worker_host import HostReady, HostSpec, WorkerHost
from launchpad.launch.devices.device import Device
from launchpad.launch.large_buffers import LargeBuffer, keep_copies

_log = logging.getLogger("launchpad.hosts")

Send = Callable[[Part], Awaitable[object]]
"""Sends a part to the launcher. It returns when there is room for the next one."""


def node() -> str:
    """Return the name of this node. Processes that can open each other's sockets have the same one."""
    parts = [os.uname().nodename, str(os.getuid())]
    with contextlib.suppress(OSError):  # only Linux has them
        parts.append(str(os.stat("/proc/self/ns/mnt").st_ino))
        with open("/proc/sys/kernel/random/boot_id") as file:
            parts.append(file.read().strip())
    return "/".join(parts)


def own_ip(towards: str) -> str:
    """Return the address of this host in the network of the host `towards`."""
    family = socket.AF_INET6 if ":" in towards else socket.AF_INET
    with socket.socket(family, socket.SOCK_DGRAM) as probe:
        probe.connect((towards, 9))  # sends nothing
        return str(probe.getsockname()[0])


class NodeHost:
    """The worker hosts of one node. One event loop does everything, and nothing in it waits for a worker.

    Args:
        where: The place at which others reach this node.
        gpus: The GPUs that the cluster has given to this process, for workers without GPUs in their plan.
        gpus_from: The setting that says how many there are, for errors.
        devices: The GPUs of this host, if workers have to claim theirs.
        versions: The launcher's `launcher_info.versions`.
        remedy: The advice for a user if this process has other versions.
    """

    def __init__(
        self,
        where: HostReady,
        versions: Mapping[str, str],
        remedy: str,
        gpus: Sequence[str] = (),
        gpus_from: str = "",
        devices: Sequence[Device] = (),
    ) -> None:
        self._where = where
        self._versions = versions
        self._remedy = remedy
        self._gpus = gpus
        self._gpus_from = gpus_from
        self._devices = devices
        self._hosts: dict[str, WorkerHost] = {}
        # Hosts that are being closed, and whose workers have new hosts.
        self._formers: set[WorkerHost] = set()
        self._given: dict[str, Sequence[str]] = {}
        self._buffers: dict[int, LargeBuffer] = {}
        self._new_buffers: list[LargeBuffer] = []
        # Held while new buffers are copied, because a call that refers to one must wait until it is.
        self._keeping = asyncio.Lock()
        self._subreapers = SubreaperServer()
        self._port = OpenPort()
        self._lease = HostLease(self._on_lease_end)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._serving: asyncio.Task[Any] | None = None
        self._why_ended = ""
        self._is_closing = False

    async def serve(self, parts: AsyncIterator[Part], send: Send) -> None:
        """Execute calls as long as they come. Then end what is left of the workers.

        Raises:
            LaunchError: the lease has ended, because the launcher didn't answer; or no answer can be sent.
        """
        self._loop = asyncio.get_running_loop()
        self._serving = asyncio.current_task()
        self._queue = SendQueue(self._on_unsendable)
        self._lease.begin()
        joiner = PartJoiner()
        tasks = {asyncio.create_task(self._send_answers(send))}
        try:
            async for part in parts:
                message = joiner.add(part)
                if isinstance(message, NewBuffer):
                    self._buffers[message.number] = message.buffer
                    self._new_buffers.append(message.buffer)
                elif message is not None:
                    arguments = [self._received(argument) for argument in message.arguments]
                    call = replace(message, arguments=arguments)
                    tasks.add(asyncio.create_task(self._execute(call)))
                    tasks = {task for task in tasks if not task.done()}
        except asyncio.CancelledError:
            if not self._why_ended:
                raise
            raise LaunchError(self._why_ended) from None
        finally:
            # A second reason to end must not cut short what follows.
            self._is_closing = True
            # First stop the calls in progress. Otherwise they would report the workers, which are ended here,
            # as if these had ended by themselves.
            for task in tasks:
                task.cancel()
            closing = (host.close() for host in (*self._hosts.values(), *self._formers))
            for error in await asyncio.gather(*closing, return_exceptions=True):
                if error is not None:
                    _log.warning("a worker's host could not be closed", exc_info=error)
            self._subreapers.close()
            self._lease.release()

    def _on_lease_end(self) -> None:
        """End all workers at once, in the lease's thread, since the event loop may be busy or stuck."""
        for host in (*self._hosts.values(), *self._formers):
            OwnThread(target=host.end_now, name="launchpad-lease-end").start()
        self.end(lease.ENDED)

    def end(self, why: str) -> None:
        """End `serve`, which then raises LaunchError. Any thread and any signal handler may call this."""
        if self._loop is not None:
            with contextlib.suppress(RuntimeError):  # the loop has been closed
                self._loop.call_soon_threadsafe(self._stop, why)

    def _stop(self, why: str) -> None:
        if self._is_closing or self._why_ended:
            return
        assert self._serving is not None
        self._why_ended = why
        self._serving.cancel()

    async def _send_answers(self, send: Send) -> None:
        try:
            async for part in self._queue.parts():
                await send(part)
        except Exception as error:
            self._stop(f"the launcher does not take answers: {type(error).__name__}: {error}")

    def _on_unsendable(self, answer: Answer, error: Exception) -> None:
        why = f"the answer cannot be sent: {type(error).__name__}: {error}"
        self._queue.put(Answer(answer.number, error=why))

    def _received(self, argument: Any) -> Any:
        """Return the argument; for the stand-in of a large buffer, the buffer."""
        return self._buffers[argument.number] if isinstance(argument, SentBuffer) else argument

    async def _execute(self, call: HostCall) -> None:
        result = None
        error = None
        try:
            result = await self._call(call.worker, call.method, *call.arguments, **call.options)
        except LaunchError as refused:
            error = str(refused)
        except Exception as raised:
            error = f"{type(raised).__name__}: {raised}"
        if not call.has_answer:
            if error is not None:
                _log.debug("%s of %s failed: %s", call.method, call.worker or "the node", error)
            return
        answer = Answer(call.number, result, error)
        self._queue.put(answer, is_urgent=not call.worker and call.method == node_connection.RENEW)

    async def _call(self, worker: str, method: str, *arguments: Any, **options: Any) -> Any:
        """Call a method of a worker's host. `open` makes the host; `end` ends it and all that it started."""
        if not worker:
            return await self._call_node(method, *arguments)
        if method == "open":
            return await self._open(worker, *arguments)
        host = self._hosts[worker]
        if method == "end":
            await host.close()
            if self._hosts.get(worker) is host:
                del self._hosts[worker]
                self._given.pop(worker, None)
            return None
        return await getattr(host, method)(*arguments, **options)

    async def _call_node(self, method: str, *arguments: Any) -> Any:
        """Execute a call that concerns the node, and no worker."""
        match method:
            case node_connection.RENEW:
                return self._lease.renew()
            case "open_port":
                return await self._port.open(self._where.ip)
            case "unreachable":
                return await reachability.unreachable(*arguments)
            case "close_port":
                return self._port.close()
        raise AssertionError(method)

    async def _open(
        self, worker: str, spec: HostSpec, keys: RunSecrets, *buffers: LargeBuffer
    ) -> HostReady:
        former = self._hosts.get(worker)
        host = WorkerHost(self._versions, self._remedy, self._subreapers)
        # The host is registered first. Otherwise an `end` that comes while the former host is being closed
        # would find that one, and this one would stay.
        self._hosts[worker] = host
        if former:
            self._formers.add(former)
            await former.close()
            self._formers.discard(former)
            self._given.pop(worker, None)
            if self._hosts.get(worker) is not host:
                raise LaunchError("it was ended before it was ready")
        gpus = spec.worker.plan.gpus or self._free_gpus(worker, spec.worker.plan.resources.gpus)
        self._given[worker] = gpus
        await self._keep_new_buffers()
        return await host.open_at(self._where, tuple(gpus), spec, keys, buffers, self._devices)

    async def _keep_new_buffers(self) -> None:
        """Copy new large buffers into one file, which all worker hosts of this node share."""
        async with self._keeping:
            new = self._new_buffers
            self._new_buffers = []
            # It may take many seconds, in which the lease must be renewed.
            await asyncio.to_thread(keep_copies, new)

    def _free_gpus(self, worker: str, n_asked: float) -> Sequence[str]:
        """Return GPUs of this process that no other worker has. Raise LaunchError if there are too few."""
        n_gpus = math.ceil(n_asked)
        in_use = {gpu for of_worker in self._given.values() for gpu in of_worker}
        free = [gpu for gpu in self._gpus if gpu not in in_use]
        if n_gpus > len(free):
            raise LaunchError(
                f"{worker} asks for {n_gpus} GPU, and of those that its host process on"
                f" {os.uname().nodename} was given, {list(self._gpus)}, {free} are free: see"
                f" {self._gpus_from}"
            )
        return free[:n_gpus]
