"""The code in a task of Spark's: worker hosts, one for each worker that the launcher places here.

    launcher ◀── join: where it is ──────────────────────────── task
             ── commands: open, execute_in_order, next_update … ──▶ worker hosts ══ workers

The stream of commands is the lifeline of both ends. If the launcher is gone, the task ends its workers, and
then itself. If the task is gone, for example because Spark has killed its executor, the lifelines of its
hosts end the workers, and the launcher notices that its stream has closed.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
import os
import socket
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import psutil

from launchpad.courier import Client, CourierError, StreamBroken, keyring
from launchpad.errors import LaunchError
from launchpad.launch.backends.launcher_info import RunSecrets
from launchpad.launch.backends.remote.worker_host import HostReady, HostSpec, WorkerHost
from launchpad.launch.backends.spark.task_connection import Command, SentBuffer, TaskReady
from launchpad.launch.large_buffers import LargeBuffer, keep_copies

_REMEDY = "Install the launcher's versions where the executors are, and have PYSPARK_PYTHON name that Python"


@dataclass(frozen=True)
class LauncherAddress:
    """The launcher's address and keys, which Spark carries to a task. With them the task joins its job.

    Attributes:
        address: The address of the launcher's server.
        job: The number of the launcher's job to which the task belongs.
        versions: The launcher's `launcher_info.versions`.
    """

    address: str
    job: int
    keys: RunSecrets
    versions: Mapping[str, str]


def node() -> str:
    """Return the name of this node. Processes that can open each other's sockets have the same one."""
    parts = [os.uname().nodename, str(os.getuid())]
    with contextlib.suppress(OSError):  # only Linux has them
        parts.append(str(os.stat("/proc/self/ns/mnt").st_ino))
        with open("/proc/sys/kernel/random/boot_id") as file:
            parts.append(file.read().strip())
    return "/".join(parts)


def serve(launcher: LauncherAddress, task: int, gpus: tuple[str, ...]) -> None:
    """Serve as a host until the launcher ends the task, or is gone. Leave nothing behind then."""
    ip = launcher.address.removeprefix("tcp:").rpartition(":")[0].strip("[]")
    ready = TaskReady(HostReady(node(), own_ip(ip)), _executor())
    keyring.add(launcher.address, launcher.keys.token, launcher.keys.credentials)
    try:
        asyncio.run(TaskHost(launcher, task, ready, gpus).serve())
    finally:
        keyring.remove(launcher.address)


class TaskHost:
    """The worker hosts of one task. One event loop does everything, and nothing in it waits for a worker."""

    def __init__(
        self, launcher: LauncherAddress, task: int, ready: TaskReady, gpus: tuple[str, ...]
    ) -> None:
        self._launcher = launcher
        self._task = task
        self._ready = ready
        self._gpus = gpus
        self._hosts: dict[str, WorkerHost] = {}
        self._given: dict[str, list[str]] = {}
        self._buffers: dict[int, LargeBuffer] = {}

    async def serve(self) -> None:
        """Execute commands as long as they come, and then end what is left of the workers.

        Raises:
            CourierError: the launcher could not be reached.
        """
        tasks: set[asyncio.Task[None]] = set()
        job = self._launcher.job
        try:
            with Client(self._launcher.address, wait_for_ready=False) as launcher:
                client: Any = launcher
                with contextlib.suppress(StreamBroken):  # the launcher is gone
                    async for command in client.aio.join(job, self._task, self._ready):
                        # Keep the buffers before the next command comes, which may refer to the same buffers.
                        self._keep(command.arguments)
                        arguments = [self._received(argument) for argument in command.arguments]
                        full_command = replace(command, arguments=arguments)
                        tasks.add(asyncio.create_task(self._execute(client, full_command)))
                        tasks = {task for task in tasks if not task.done()}
        finally:
            # First stop the calls in progress. Otherwise they would report the workers, which are ended here,
            # as if these had ended by themselves.
            for task in tasks:
                task.cancel()
            await asyncio.gather(*(host.close() for host in self._hosts.values()))

    def _keep(self, arguments: Sequence[Any]) -> None:
        """Put the large buffers of a command into one file, which all worker hosts of this task share."""
        sent_buffers = [argument for argument in arguments if isinstance(argument, SentBuffer)]
        new = {sent.number: sent.buffer for sent in sent_buffers if sent.buffer is not None}
        keep_copies([*new.values()])
        self._buffers |= new

    def _received(self, argument: Any) -> Any:
        """Return the argument; for the stand-in of a large buffer, the buffer."""
        return self._buffers[argument.number] if isinstance(argument, SentBuffer) else argument

    async def _execute(self, client: Any, command: Command) -> None:
        result = None
        error = None
        try:
            result = await self._call(
                command.worker, command.method, *command.arguments, **command.options
            )
        except LaunchError as refused:
            error = str(refused)
        except Exception as raised:
            error = f"{type(raised).__name__}: {raised}"
        # The launcher may be gone.
        with contextlib.suppress(CourierError):
            await client.aio.answer(self._launcher.job, self._task, command.number, result, error)

    async def _call(self, worker: str, method: str, *arguments: Any, **options: Any) -> Any:
        """Call a method of a worker's host. `open` makes the host; `end` ends it and all that it started."""
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

    async def _open(
        self, worker: str, spec: HostSpec, keys: RunSecrets, *buffers: LargeBuffer
    ) -> HostReady:
        former = self._hosts.get(worker)
        if former:  # the former host is being ended
            await former.close()
            self._given.pop(worker, None)
        n_gpus = math.ceil(spec.worker.plan.resources.gpus)
        in_use = {gpu for of_worker in self._given.values() for gpu in of_worker}
        free = [gpu for gpu in self._gpus if gpu not in in_use]
        if n_gpus > len(free):
            raise LaunchError(
                f"{worker} asks for {n_gpus} GPU, and of those that Spark has given its task on"
                f" {os.uname().nodename}, {list(self._gpus)}, {free} are free: see"
                " spark.task.resource.gpu.amount"
            )
        host = WorkerHost(self._launcher.versions, _REMEDY)
        self._hosts[worker] = host
        gpus = free[:n_gpus]
        self._given[worker] = gpus
        where = self._ready.where
        return await host.open_at(where, tuple(gpus), spec, keys, buffers)


def own_ip(towards: str) -> str:
    """Return the address of this host in the network of the host `towards`."""
    family = socket.AF_INET6 if ":" in towards else socket.AF_INET
    with socket.socket(family, socket.SOCK_DGRAM) as probe:
        probe.connect((towards, 9))  # sends nothing
        return str(probe.getsockname()[0])


def _executor() -> str:
    """Return Spark's name of this process's executor; `driver` if the driver runs tasks itself."""
    for parent in psutil.Process().parents():
        with contextlib.suppress(psutil.Error, ValueError, IndexError):
            command = parent.cmdline()
            return command[command.index("--executor-id") + 1]
    return "driver"
