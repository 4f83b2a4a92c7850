"""The code in a task of Spark's: a node host, which joins the launcher.

If the task is gone, for example because Spark has killed its executor, the launcher notices that the task's
stream has closed: see `remote/join_server.py`.
"""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Iterator

import psutil

from launchpad.launch.backends.remote import joined_node
from launchpad.launch.backends.remote.joined_node import LauncherAddress
from launchpad.launch.backends.remote.node_connection import NodeReady
from launchpad.launch.backends.remote.node_host import NodeHost, node
from launchpad.launch.backends.remote.worker_host import HostReady

_REMEDY = "Install the launcher's versions where the executors are, and have PYSPARK_PYTHON name that Python"
_GPUS_FROM = "spark.task.resource.gpu.amount"


def serve(launcher: LauncherAddress, job: int, task: int, gpus: tuple[str, ...]) -> None:
    """Serve as a host until the launcher ends the task, or is gone. Leave nothing behind then.

    Args:
        job: The number of the launcher's job to which the task belongs.

    Raises:
        CourierError: the launcher could not be reached.
    """
    ready = NodeReady(HostReady(node(), launcher.own_ip()), _executor())
    host = NodeHost(ready.where, launcher.versions, _REMEDY, gpus, _GPUS_FROM)
    with _ending_at_hangup(host):
        joined_node.serve(launcher, (job, task), ready, host)


@contextlib.contextmanager
def _ending_at_hangup(host: NodeHost) -> Iterator[None]:
    """Let SIGHUP end the host in order.

    An executor that ends sends it to its Python processes. Without a handler it would kill this one at once,
    in the middle of removing the folder of a worker.
    """
    former = signal.signal(signal.SIGHUP, lambda *_: host.end("Spark's executor has ended"))
    try:
        yield
    finally:
        signal.signal(signal.SIGHUP, former)


def _executor() -> str:
    """Return Spark's name of this process's executor; `driver` if the driver runs tasks itself."""
    for parent in psutil.Process().parents():
        with contextlib.suppress(psutil.Error, ValueError, IndexError):
            command = parent.cmdline()
            return command[command.index("--executor-id") + 1]
    return "driver"
