"""The Ray actor of one worker: a worker host that Ray places, and to which it gives GPUs."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping

from launchpad.errors import LaunchError
from launchpad.launch.backends.launcher_info import RunSecrets
from launchpad.launch.backends.ray import cluster
from launchpad.launch.backends.remote.lease import HostLease
from launchpad.launch.backends.remote.worker_host import HostReady, HostSpec, WorkerHost
from launchpad.launch.devices.device import VISIBLE
from launchpad.launch.large_buffers import LargeBuffer
from launchpad.launch.plan import WorkerPlan

_REMEDY = "Install the launcher's versions on all nodes, or name them in ray.init(runtime_env={'pip': […]})"


class WorkerActor(WorkerHost):
    """A worker host that is a Ray actor. It takes the launcher's versions, which its node must have, too."""

    def __init__(self, launcher: Mapping[str, str]) -> None:
        super().__init__(launcher, _REMEDY)

    async def open(self, spec: HostSpec, keys: RunSecrets, *buffers: LargeBuffer) -> HostReady:
        """Prepare the node. Raise LaunchError if that fails; the text says why."""
        where = HostReady(*cluster.here())
        gpus = _checked_gpus(spec.worker.plan)
        ready = await self.open_at(where, gpus, spec, keys, buffers)
        self._lease = HostLease(self.end_now)
        self._lease.begin()
        return ready

    async def renew(self) -> None:
        """Renew the lease of this actor."""
        self._lease.renew()

    async def close(self) -> None:
        await super().close()
        self._lease.release()


def _checked_gpus(worker: WorkerPlan) -> tuple[str, ...]:
    """Return the devices that Ray gave to this actor. Raise LaunchError if the worker needs others."""
    ray = cluster.load()
    ids = tuple(map(str, ray.get_runtime_context().get_accelerator_ids().get("GPU", ())))
    n_gpus = math.ceil(worker.resources.gpus)
    visible = os.environ.get(VISIBLE)
    if len(set(ids)) != n_gpus or (ids and visible is not None and visible != ",".join(ids)):
        raise LaunchError(
            f"{worker.name} asks for {n_gpus} GPU, and Ray has given it {list(ids)} with"
            f" {VISIBLE}={visible!r} on {os.uname().nodename}. See what sets that variable there"
        )
    return ids
