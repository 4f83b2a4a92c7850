"""The surroundings of a worker's process: its environment variables, and the limits it is kept to.

    variables     CUDA_VISIBLE_DEVICES    the GPUs that it was given, and no others; empty: none
                  CUDA_DEVICE_ORDER       PCI_BUS_ID, so that CUDA counts them as we do
                  OMP_NUM_THREADS, …      as many as it may use CPUs, unless somebody has said how many
    limits        CPU affinity            where it asks for a whole number of CPUs
                  RLIMIT_DATA             memory: private and writable. Not the address space, of which CUDA
                                          and others reserve far more than they use

All of it is there before anything of the user's is imported.
"""

from __future__ import annotations

import contextlib
import math
import os
import resource
from collections.abc import Iterator

from launchpad.launch.backends import local_host
from launchpad.launch.devices.device import VISIBLE
from launchpad.launch.plan import WorkerPlan
from launchpad.launch.rundir import claims

_THREADS = "OMP_NUM_THREADS MKL_NUM_THREADS OPENBLAS_NUM_THREADS NUMEXPR_NUM_THREADS".split()


def environment(plan: WorkerPlan, run_id: str, num_workers: int) -> dict[str, str]:
    """What is set for a worker beside what it inherits; its own variables count most.

    Args:
        plan: Whose.
        run_id: The run that holds its GPUs.
        num_workers: How many share this host's CPUs.
    """
    threads = str(_num_threads(plan, num_workers))
    hints = {name: threads for name in _THREADS if name not in os.environ}
    gpus = {VISIBLE: ",".join(plan.gpus)}
    if plan.gpus:
        gpus |= {"CUDA_DEVICE_ORDER": "PCI_BUS_ID", **claims.worker_environment(run_id)}
    return {**hints, **gpus, **plan.env}


def bind(plan: WorkerPlan) -> None:
    """Keeps this process, and what it starts, to its CPUs."""
    if plan.cpus:
        with contextlib.suppress(OSError):  # a CPU has been taken away meanwhile
            os.sched_setaffinity(0, plan.cpus)


@contextlib.contextmanager
def limited(plan: WorkerPlan) -> Iterator[None]:
    """The user's code in here has so much memory; what we do before, and tell of its end, has no limit."""
    limit = plan.resources.memory_bytes
    if limit is None:
        yield
        return
    before = resource.getrlimit(resource.RLIMIT_DATA)
    allowed = [limit, *(most for most in before if most != resource.RLIM_INFINITY)]
    resource.setrlimit(resource.RLIMIT_DATA, (min(allowed), before[1]))
    try:
        yield
    finally:
        with contextlib.suppress(
            ValueError
        ):  # the user's code has lowered what may be allowed at all
            resource.setrlimit(resource.RLIMIT_DATA, before)


def _num_threads(plan: WorkerPlan, num_workers: int) -> int:
    if plan.resources.cpus is not None:
        return math.ceil(plan.resources.cpus)
    value = os.environ.get(_THREADS[0], "")  # Ray says it, who knows how many share a node
    return int(value) if value.isdigit() else max(1, local_host.number_of_cpus() // num_workers)
