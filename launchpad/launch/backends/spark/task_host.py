"""The code in a task of Spark's: a node host, which the launcher reaches through the task's own connection.

    launcher ◀── join: where it is ───────────────── task
             ── calls, as items of that stream ────▶ node host ── worker hosts ══ workers
             ◀── answer(job, task, number, …) ───────┘

The task connects to the launcher, never the other way round, because executors reach their driver in every
cluster. The stream is the lifeline of both ends: if the task is gone, for example because Spark has killed
its executor, the launcher notices that its stream has closed.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from typing import Any

import psutil

from launchpad.courier import Client, CourierError, StreamBroken, keyring
from launchpad.launch.backends.launcher_info import RunSecrets
from launchpad.launch.backends.remote.node_connection import Message, NodeReady
from launchpad.launch.backends.remote.node_host import NodeHost, node, own_ip
from launchpad.launch.backends.remote.worker_host import HostReady

_REMEDY = "Install the launcher's versions where the executors are, and have PYSPARK_PYTHON name that Python"
_GPUS_FROM = "spark.task.resource.gpu.amount"


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


def serve(launcher: LauncherAddress, task: int, gpus: tuple[str, ...]) -> None:
    """Serve as a host until the launcher ends the task, or is gone. Leave nothing behind then.

    Raises:
        CourierError: the launcher could not be reached.
    """
    ip = launcher.address.removeprefix("tcp:").rpartition(":")[0].strip("[]")
    ready = NodeReady(HostReady(node(), own_ip(ip)), _executor())
    keyring.add(launcher.address, launcher.keys.token, launcher.keys.credentials)
    try:
        asyncio.run(_serve(launcher, task, ready, gpus))
    finally:
        keyring.remove(launcher.address)


async def _serve(
    launcher: LauncherAddress, task: int, ready: NodeReady, gpus: tuple[str, ...]
) -> None:
    with Client(launcher.address, wait_for_ready=False) as connected:
        client: Any = connected

        async def messages() -> AsyncIterator[Message]:
            with contextlib.suppress(StreamBroken):  # the launcher is gone
                async for message in client.aio.join(launcher.job, task, ready):
                    yield message

        async def answer(number: int, result: Any, error: str | None) -> None:
            with contextlib.suppress(CourierError):  # the launcher may be gone
                await client.aio.answer(launcher.job, task, number, result, error)

        host = NodeHost(ready.where, launcher.versions, _REMEDY, gpus, _GPUS_FROM)
        await host.serve(messages(), answer)


def _executor() -> str:
    """Return Spark's name of this process's executor; `driver` if the driver runs tasks itself."""
    for parent in psutil.Process().parents():
        with contextlib.suppress(psutil.Error, ValueError, IndexError):
            command = parent.cmdline()
            return command[command.index("--executor-id") + 1]
    return "driver"
