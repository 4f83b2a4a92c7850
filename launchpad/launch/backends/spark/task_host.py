"""What runs in a task of Spark's: worker hosts, one for each worker that the launcher places here.

    launcher ◀── join: where it is; never returns ── task
             ── call: open, execute_in_order, next_update … ──▶ worker hosts ══ workers

`join` is both ends' lifeline. The launcher is gone: the task ends its workers, and itself. The task is gone:
the launcher's `join` is cancelled. What Spark does, killing the process of a task, is one more way for it to
go: then the lifelines of the worker hosts end.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
import os
import socket
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import portpicker
import psutil

from launchpad.courier import Client, Server, keyring
from launchpad.errors import LaunchError
from launchpad.launch.backends.launch_origin import LauncherInfo, RunSecrets
from launchpad.launch.backends.remote.worker_host import HostReady, WorkerHost
from launchpad.launch.plan import LaunchPlan
from launchpad.state.places import StatePlaces

_REMEDY = "Install the launcher's versions where the executors are, and have PYSPARK_PYTHON name that Python"


@dataclass(frozen=True)
class Invitation:
    """What Spark carries to a task: how it finds the launcher, and proves that it may.

    Attributes:
        launcher: The address of its server.
        job: Which of the launcher's jobs the task belongs to.
        versions: The launcher's `launch_origin.versions`.
    """

    launcher: str
    job: int
    keys: RunSecrets
    versions: Mapping[str, str]


@dataclass(frozen=True)
class TaskReady:
    """A task says where it is: its server, and the executor whose process `pid` it is."""

    address: str
    where: HostReady
    executor: str
    pid: int


def node() -> str:
    """A name that all processes have, and no others, that could open each other's sockets on disk."""
    parts = [os.uname().nodename, str(os.getuid())]
    with contextlib.suppress(OSError):  # only Linux has them
        parts.append(str(os.stat("/proc/self/ns/mnt").st_ino))
        with open("/proc/sys/kernel/random/boot_id") as file:
            parts.append(file.read().strip())
    return "/".join(parts)


def endpoint(ip: str) -> str:
    """A courier address there, at a port that is free here."""
    host = f"[{ip}]" if ":" in ip else ip
    return f"tcp:{host}:{portpicker.pick_unused_port()}"


def serve(invitation: Invitation, task: int, gpus: tuple[str, ...]) -> None:
    """Is a host until the launcher says that it is over, or is gone; nothing is left then."""
    launcher_ip = invitation.launcher.removeprefix("tcp:").rpartition(":")[0].strip("[]")
    where = HostReady(node(), _own_ip(launcher_ip))
    tasks = TaskHost(invitation.versions, where, gpus)
    address, keys = endpoint(where.ip), invitation.keys
    for each in (address, invitation.launcher):
        keyring.add(each, keys.token, keys.credentials)
    server = Server(f"spark-task-{task}", address=address)
    server.bind("call", tasks.call)
    server.bind("leave", tasks.is_over.set)
    server.start()
    ready = TaskReady(address, where, _executor(), os.getpid())
    try:
        with Client(invitation.launcher, wait_for_ready=False) as launcher:
            joined = launcher.futures.join(invitation.job, task, ready)
            joined.add_done_callback(lambda _: tasks.is_over.set())
            tasks.is_over.wait()
    finally:
        server.stop(0)  # first: nothing that now ends is reported any more as if it had by itself
        tasks.close()
        for each in (address, invitation.launcher):
            keyring.remove(each)


class TaskHost:
    """The worker hosts of one task.

    Attributes:
        is_over: The launcher has ended the task, or itself.
    """

    def __init__(
        self, launcher_versions: Mapping[str, str], where: HostReady, gpus: tuple[str, ...]
    ) -> None:
        self._versions, self._where, self._gpus = launcher_versions, where, gpus
        self._hosts: dict[str, WorkerHost] = {}
        self.is_over = threading.Event()

    async def call(self, worker: str, method: str, *arguments: Any, **options: Any) -> Any:
        """Calls a method of a worker's host; `open` makes it, `end` ends it with all that it has started."""
        if method == "open":
            return await self._open(worker, *arguments)
        host = self._hosts[worker]
        if method == "end":
            del self._hosts[worker]
            return await host.close()
        return await getattr(host, method)(*arguments, **options)

    async def _open(
        self,
        worker: str,
        plan: LaunchPlan,
        origin: LauncherInfo,
        run_id: str,
        state: StatePlaces,
        keys: RunSecrets,
    ) -> HostReady:
        asked = math.ceil(plan.worker(worker).resources.gpus)
        if asked > len(self._gpus):
            raise LaunchError(
                f"{worker} asks for {asked} GPU, and Spark has given its task {list(self._gpus)} on"
                f" {os.uname().nodename}: see spark.task.resource.gpu.amount"
            )
        host = self._hosts[worker] = WorkerHost(self._versions, _REMEDY)
        given = self._gpus[:asked]
        return await host.open_at(self._where, given, plan, origin, run_id, state, keys)

    def close(self) -> None:
        """Ends all workers, and waits for that; when nothing is served any more."""

        async def close_all() -> None:
            await asyncio.gather(*(host.close() for host in self._hosts.values()))

        asyncio.run(close_all())


def _own_ip(towards: str) -> str:
    """The address of this host in the network of that one."""
    family = socket.AF_INET6 if ":" in towards else socket.AF_INET
    with socket.socket(family, socket.SOCK_DGRAM) as probe:
        probe.connect((towards, 9))  # sends nothing
        return str(probe.getsockname()[0])


def _executor() -> str:
    """The number of the executor that this process belongs to; empty where its command does not say."""
    for parent in psutil.Process().parents():
        with contextlib.suppress(psutil.Error, ValueError, IndexError):
            command = parent.cmdline()
            return command[command.index("--executor-id") + 1]
    return ""
