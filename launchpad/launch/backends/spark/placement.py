"""The choice of a task as the host of each worker, and the refusal of what a task can't give. Pure.

1. The processes of a MultiProcessingColocation have one host.
2. A worker that asks for CPUs or GPUs has a task to itself, with as many of them as Spark gives each task.
3. All other workers take turns on the tasks that are left. If none is left, they take turns on all tasks.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import cycle

from launchpad.launch.backends.remote.placement import units
from launchpad.launch.plan import WorkerPlan
from launchpad.resources import STRICT_PACK, STRICT_SPREAD


def refusal(workers: Sequence[WorkerPlan], cpus: float, gpus: float) -> str:
    """Return why tasks with this many CPUs and GPUs each can't be hosts of the workers; empty if they can."""
    for unit in units(workers):
        group = unit[0].group
        resources = unit[0].resources
        n_cpus = sum(worker.resources.cpus or 0 for worker in unit)
        n_gpus = sum(math.ceil(worker.resources.gpus) for worker in unit)  # each has whole devices
        if n_cpus > cpus:
            return (
                f"{group} asks for {n_cpus:g} CPUs on one host, and a task has {cpus:g}: start the"
                f" application with spark.task.cpus={n_cpus:g}, or ask for less"
            )
        if n_gpus > gpus:
            return (
                f"{group} asks for {n_gpus:g} GPUs on one host, and a task has {gpus:g}: start the"
                f" application with spark.task.resource.gpu.amount={n_gpus:g} and executors that have"
                " as many, or ask for less"
            )
        if resources.placement in (STRICT_PACK, STRICT_SPREAD):
            return (
                f"{group} wants placement={resources.placement!r}, and Spark decides where its tasks run:"
                f" take {resources.placement.removeprefix('strict_')!r}, which is a preference, or 'ray'"
            )
        for name in ("labels", "accelerator"):
            value = getattr(resources, name)
            if value:
                return (
                    f"{group} wants {name}={value!r}, and Spark does not say this of its executors:"
                    " leave it out, or take 'ray' or 'kubernetes'"
                )
    return ""


def alone(workers: Sequence[WorkerPlan]) -> list[list[WorkerPlan]]:
    """Return the units that need a task to themselves."""
    return [unit for unit in units(workers) if _is_alone(unit)]


def want_one_each(workers: Sequence[WorkerPlan]) -> str:
    """Return text like `3 workers ask for CPUs or GPUs and want a task each (learner, sim)`."""
    alone_units = alone(workers)
    groups = ", ".join(dict.fromkeys(unit[0].group for unit in alone_units))
    return f"{len(alone_units)} workers ask for CPUs or GPUs and want a task each ({groups})"


def place(workers: Sequence[WorkerPlan], n_tasks: int) -> dict[str, int]:
    """Return worker → the number of the task that is its host.

    Raises:
        ValueError: there are fewer tasks than units that need a task to themselves; the text says so.
    """
    n_alone = len(alone(workers))
    if n_alone > n_tasks:
        raise ValueError(f"{want_one_each(workers)}, and the Spark application has {n_tasks} slots")
    shared_tasks = cycle(range(n_alone, n_tasks) or range(n_tasks))
    own_tasks = iter(range(n_tasks))
    placed: dict[str, int] = {}
    for unit in units(workers):
        placed |= dict.fromkeys(
            (w.name for w in unit), next(own_tasks if _is_alone(unit) else shared_tasks)
        )
    return placed


def _is_alone(unit: Sequence[WorkerPlan]) -> bool:
    return any(worker.resources.cpus or worker.resources.gpus for worker in unit)
