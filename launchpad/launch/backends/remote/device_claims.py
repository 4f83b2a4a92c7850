"""Claims on the GPUs of a node, so that no two programs of a user get the same ones.

The launcher chooses a worker's GPUs among those that were free when it connected with the node. The node
claims them before the worker begins, in the table that programs on that host itself use. If another program
has taken a GPU in the meantime, the node refuses the worker.
"""

from __future__ import annotations

import os
from collections.abc import Sequence

from launchpad.launch.backends.remote.lease import LEASE_S
from launchpad.launch.devices.allocation import UNIT, GpuRequest
from launchpad.launch.devices.device import Device, listed
from launchpad.launch.plan import WorkerPlan
from launchpad.launch.rundir import claims
from launchpad.launch.rundir.claims import Claim, ClaimRecord, ClaimTable

_RELEASE_WAIT_S = LEASE_S + 5.0
"""How long a worker waits for GPUs that are about to be free. If the launcher has lost the node and is back,
the workers of its former node process may hold them until their lease ends."""


def claim(
    run_id: str, launch: str, program: str, worker: WorkerPlan, devices: Sequence[Device]
) -> Claim:
    """Claim a worker's GPUs on this host. May take seconds.

    Args:
        run_id: The run on this host that holds them.
        launch: The launcher's run.
        worker: The worker. Its GPUs are among `devices`.
        devices: The GPUs of this host.

    Raises:
        LaunchError: another program holds one of them.
    """
    resources = worker.resources
    n_units = GpuRequest(worker.name, worker.group, resources.gpus, resources.accelerator).units
    gpus = {device.uuid: n_units for device in devices if device.id in worker.gpus}
    own = ClaimRecord(
        run_id, program, os.getpid(), gpus, workers={worker.name: worker.gpus}, launch=launch
    )

    def choose(table: ClaimTable) -> ClaimRecord | None:
        taken = table.taken()
        return own if all(taken[uuid] + n_units <= UNIT for uuid in gpus) else None

    def is_ending(record: ClaimRecord) -> bool:
        return not gpus.keys().isdisjoint(record.gpus) and (
            record.launch == launch or record.launcher_is_dead
        )

    def refusal(holders: Sequence[ClaimRecord]) -> str:
        others = [
            record
            for record in holders
            if record.launch != launch and not gpus.keys().isdisjoint(record.gpus)
        ]
        return (
            f"{worker.name} was given {listed(worker.gpus)} of {os.uname().nodename}, and programs that have"
            f" begun since then hold:{claims.holdings(others, devices)}\nWait for them, or end them."
        )

    return claims.claim(choose, is_ending, refusal, _RELEASE_WAIT_S)
