"""The text of the job: the script for `sbatch`, and the `srun` in it, which starts a process on each node."""

from __future__ import annotations

import math
import os
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path

from launchpad.courier import formatting
from launchpad.errors import DefinitionError
from launchpad.launch.backends.slurm import share
from launchpad.launch.backends.slurm.settings import SlurmSettings, memory_bytes
from launchpad.launch.plan import LaunchPlan

_FOLDER = "~/.launchpad-slurm"
JOIN = "join"
"""The file in the run's folder with what a node's process needs to join the launcher."""

OUTPUT = "job.log"

_OWN_BYTES = 512 << 20
"""Memory on each node for launchpad's own processes, beside what the workers ask for."""

_MIB = 1 << 20

_START = (
    'import json,sys;h=json.loads(sys.stdin.readline());sys.path[:]=h["path"];'
    "from launchpad.launch.backends.slurm import node_process;node_process.main(h)"
)


def folder(run_id: str) -> Path:
    """Return the folder of a run. It is in the user's home folder, which a cluster's hosts share."""
    return Path(_FOLDER, run_id).expanduser()


def number_of_nodes(settings: SlurmSettings) -> int:
    """Return the number of nodes: in a job, all of its nodes unless the settings say otherwise."""
    return settings.nodes or int(os.environ.get("SLURM_JOB_NUM_NODES", "1"))


def job_options(plan: LaunchPlan, settings: SlurmSettings) -> list[str]:
    """Return the options of `sbatch` for a plan.

    Raises:
        DefinitionError: no job of that many nodes can have what the workers ask for.
    """
    n_nodes = number_of_nodes(settings)
    try:
        need = share.largest(plan.workers, n_nodes)
    except ValueError as error:
        raise DefinitionError(f"program {plan.program!r} does not fit: {error}") from error
    n_cpus = settings.cpus_per_node or need.cpus
    options = [
        f"--job-name={plan.program}",
        f"--nodes={n_nodes}",
        "--ntasks-per-node=1",
        f"--cpus-per-task={n_cpus}",
    ]
    options += _memory(plan.program, need, n_cpus, settings)
    options += _gpus(need, settings)
    if settings.time is not None:
        options.append(f"--time={settings.time}")
    for name in ("partition", "account", "qos", "constraint"):
        value = getattr(settings, name)
        if value:
            options.append(f"--{name}={value}")
    # The job goes on without a node that has failed. Launchpad, not Slurm, decides what is started again.
    return [*options, "--no-kill", "--no-requeue", *settings.sbatch_options]


def _gpus(need: share.NodeShare, settings: SlurmSettings) -> list[str]:
    if settings.gpus_per_node is not None:
        gpus = str(settings.gpus_per_node)
        return [f"--gres=gpu:{gpus}"] if gpus != "0" else []
    if not need.gpus:
        return []
    # Slurm refuses GPUs of a type beside GPUs of any type in one job.
    kinds = {kind.lower(): number for kind, number in need.gpus.items() if kind}
    of_any_kind = need.gpus.get("", 0)
    if not kinds:
        return [f"--gres=gpu:{of_any_kind}"]
    kinds[min(kinds)] += of_any_kind
    return ["--gres=" + ",".join(f"gpu:{kind}:{number}" for kind, number in kinds.items())]


def _memory(program: str, need: share.NodeShare, n_cpus: int, settings: SlurmSettings) -> list[str]:
    per_node = memory_bytes(settings.memory_per_node)
    if per_node is not None:
        return [f"--mem={_mib(per_node)}M"]
    per_cpu = memory_bytes(settings.memory_per_cpu)
    total = need.memory_bytes + _OWN_BYTES
    if per_cpu is None:
        return [f"--mem={_mib(total)}M"] if need.memory_bytes else []
    if need.memory_bytes > per_cpu * n_cpus:
        raise DefinitionError(
            f"program {program!r} does not fit: its workers ask for {formatting.size(need.memory_bytes)} on"
            f" one node, and {n_cpus} CPUs of {formatting.size(per_cpu)} have"
            f" {formatting.size(per_cpu * n_cpus)}: give cpus_per_node={math.ceil(total / per_cpu)}"
        )
    return [f"--mem-per-cpu={_mib(per_cpu)}M"]


def _mib(size: int) -> int:
    return math.ceil(size / _MIB)


def step(n_nodes: int) -> list[str]:
    """Return the command that starts the process of each node, as one step of the job."""
    return [
        "srun",
        # Steps of the user's, and the launcher itself if it runs in the job, may use the same CPUs.
        "--overlap",
        f"--nodes={n_nodes}",
        f"--ntasks={n_nodes}",
        "--ntasks-per-node=1",
        "--no-kill",
        "--kill-on-bad-exit=0",
        "--wait=0",
        "--unbuffered",
        "--cpu-bind=none",
        sys.executable,
        "-c",
        _START,
    ]


def text(options: Sequence[str], n_nodes: int, folder: Path) -> str:
    """Return the script of the job.

    Args:
        folder: The run's folder, which the job's first node shares.
    """
    headers = [*options, f"--output={folder / OUTPUT}"]
    lines = [
        "#!/bin/bash",
        *(f"#SBATCH {shlex.quote(option)}" for option in headers),
        "",
        "# What the nodes need to join the launcher: from a file, so that no list of processes shows it.",
        f"exec 3< {shlex.quote(str(folder / JOIN))} && rm {shlex.quote(str(folder / JOIN))} || exit 1",
        f"exec {shlex.join(step(n_nodes))} <&3 3<&-",
    ]
    return "\n".join(lines) + "\n"
