"""The process on each node of the job, which `srun` starts: a node host that joins the launcher.

Slurm sends SIGTERM to all processes of a job at once when it is cancelled, preempted or out of time, and
SIGKILL some seconds later. If the forkservers ended at the first one, no worker could save its state. So all
of them ignore it. This process tells the launcher, and the launcher then stops the program in order.

With `#SBATCH --signal=USR1@90`, Slurm also announces the time limit to all processes of all steps. They
ignore that, too, unless a worker handles the signal.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import json
import os
import pickle
import signal
import sys
from collections.abc import Mapping, Sequence
from typing import Any

from launchpad.courier import CourierError
from launchpad.courier.own_threads import OwnThread
from launchpad.errors import LaunchError
from launchpad.launch.backends.remote import joined_node
from launchpad.launch.backends.remote.joined_node import LauncherAddress
from launchpad.launch.backends.remote.node_connection import NodeReady
from launchpad.launch.backends.remote.node_host import NodeHost, node
from launchpad.launch.backends.remote.placement import NodeSupply
from launchpad.launch.backends.remote.worker_host import HostReady
from launchpad.launch.devices import cpus, inventory, out_of_memory
from launchpad.launch.devices.device import NONE_VISIBLE, VISIBLE, Device, visible

TERMINATED = "terminated"
"""The call of a node that returns when the node process has got SIGTERM."""

_REMEDY = "Run the script with a Python that all nodes share"


class SlurmNodeHost(NodeHost):
    """A node host that can say when Slurm is about to end it."""

    async def _call_node(self, method: str, *arguments: Any) -> Any:
        if method != TERMINATED:
            return await super()._call_node(method, *arguments)
        loop = asyncio.get_running_loop()
        terminated = asyncio.Event()

        def wait_for_signal() -> None:
            signal.sigwait([signal.SIGTERM])
            with contextlib.suppress(RuntimeError):  # the loop is closed
                loop.call_soon_threadsafe(terminated.set)

        OwnThread(target=wait_for_signal, name="launchpad-sigterm").start()
        await terminated.wait()
        return None


def header(launcher: LauncherAddress, path: Sequence[str], *, needs_gpus: bool) -> bytes:
    """Return what the process reads from stdin: a line of JSON."""
    packed = base64.b64encode(pickle.dumps(launcher)).decode()
    fields = {"path": list(path), "launcher": packed, "needs_gpus": needs_gpus}
    return json.dumps(fields).encode() + b"\n"


def main(fields: Mapping[str, Any]) -> None:
    """Serve as a node host until the launcher ends it or is gone."""
    # A signal that is blocked is kept for `sigwait` even if it is ignored. The forkservers unblock it, and so
    # ignore it.
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])
    for number in (signal.SIGTERM, signal.SIGUSR1, signal.SIGUSR2):
        signal.signal(number, signal.SIG_IGN)
    launcher: LauncherAddress = pickle.loads(base64.b64decode(fields["launcher"]))
    name = os.environ.get("SLURMD_NODENAME") or os.uname().nodename
    where = HostReady(node(), launcher.own_ip())
    host = SlurmNodeHost(where, launcher.versions, _REMEDY)
    ready = NodeReady(where, name, _supply(fields["needs_gpus"]))
    try:
        joined_node.serve(launcher, (name, os.getpid()), ready, host)
    except CourierError as error:
        sys.exit(f"{name}: the launcher at {launcher.where} cannot be reached: {error}")
    except LaunchError as error:
        sys.exit(f"{name}: {error}")


def _supply(needs_gpus: bool) -> NodeSupply:
    """Return what the job has on this node. Don't look for GPUs if no worker needs one."""
    n_cpus = _number("SLURM_CPUS_ON_NODE") or cpus.number_of_cpus()
    limits = [out_of_memory.usable_bytes()]
    limits.append(_number("SLURM_MEM_PER_NODE") << 20)
    limits.append((_number("SLURM_MEM_PER_CPU") << 20) * n_cpus)
    memory = min(limit for limit in limits if limit)
    return NodeSupply(n_cpus, memory, _devices() if needs_gpus else ())


def _number(variable: str) -> int:
    text = os.environ.get(variable, "")
    return int(text) if text.isdigit() else 0


def _devices() -> Sequence[Device]:
    """Return the GPUs that Slurm has given to the job here."""
    variable = os.environ.get(VISIBLE, "")
    installed = inventory.installed()
    if installed:
        return visible(installed, variable)
    # The driver's library isn't there to say more. The numbers are what workers need.
    entries = [entry for entry in variable.split(",") if entry not in NONE_VISIBLE]
    return [
        Device(int(entry), entry, "") if entry.isdigit() else Device(number, entry, "", entry)
        for number, entry in enumerate(entries)
    ]
