"""One host: the check that it has what a plan's workers ask for, and the assignment of its GPUs and CPUs.

    plan      assign   refuses what this host does not have; assigns devices as if no other run used them
    launch    claim    assigns again, only what no other run of this user holds; holds that for this run

The backends for threads and processes share this. Each keeps a worker to its GPUs and CPUs in its own way.
"""

from __future__ import annotations

import importlib.util
import os
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace

from launchpad.courier import formatting
from launchpad.errors import DefinitionError
from launchpad.launch.backends.backend import Backend
from launchpad.launch.devices import inventory, out_of_memory, shortage
from launchpad.launch.devices.allocation import GpuRequest, allocate
from launchpad.launch.devices.cpus import number_of_cpus
from launchpad.launch.devices.device import NONE_VISIBLE, VISIBLE, Device, visible
from launchpad.launch.plan import LaunchPlan, WorkerPlan
from launchpad.launch.rundir import claims
from launchpad.launch.rundir.claims import ClaimRecord, ClaimTable
from launchpad.launch.rundir.directory import RunDirectory

_RELEASE_WAIT_S = 5.0
"""How long a launch waits for the GPUs of a run whose launcher has ended. The run's workers end with their
launcher."""


class LocalBackend(Backend):
    """A backend whose workers run on this host."""

    can_attach = True

    binds_cpus = False
    """True if a worker can be kept to CPUs of its own."""

    def assign(self, plan: LaunchPlan) -> LaunchPlan:
        """Return the plan with the GPUs and CPUs that its workers get if no other run holds any.

        Raises:
            DefinitionError: this host does not have what the workers ask for.
        """
        workers = plan.workers
        _check_preload(workers)
        _check_cpus_and_memory(workers)
        requests = _requests(workers)
        devices = _devices(requests)
        assignment = allocate(devices, requests) if requests else {}
        if assignment is None:
            has = shortage.supply(devices, inventory.installed(), os.environ.get(VISIBLE))
            raise DefinitionError(
                f"{shortage.demand_of_gpus(requests)}, {has}{shortage.reason(requests, devices)}."
                " Give fewer replicas, or smaller Resources(gpus=…)."
            )
        return _equipped(plan, assignment, _cpus(workers, {}) if self.binds_cpus else {})

    def claim(self, plan: LaunchPlan, run: RunDirectory) -> LaunchPlan:
        """Return the plan with GPUs and CPUs that no other run holds. This run holds them from now on.

        Raises:
            LaunchError: other runs hold too many of the GPUs, or the folder for this run's state.
        """
        plan = super().claim(plan, run)
        has_cpus = any(worker.cpus for worker in plan.workers)
        if not has_cpus and not any(worker.gpus for worker in plan.workers):
            return plan
        requests = _requests(plan.workers)
        # This may take a second, so it is done without the table's lock.
        devices = _devices(requests)

        def choose(table: ClaimTable) -> ClaimRecord | None:
            nonlocal plan
            assignment = allocate(devices, requests, table.taken())
            if assignment is None:
                return None
            bound = _cpus(plan.workers, table.busy()) if has_cpus else {}
            plan = _equipped(plan, assignment, bound)
            gpus: Counter[str] = Counter()
            for request in requests:
                gpus.update({device.uuid: request.units for device in assignment[request.worker]})
            cpus = [cpu for worker in plan.workers for cpu in worker.cpus]
            gpu_ids = {worker.name: worker.gpus for worker in plan.workers if worker.gpus}
            return ClaimRecord(run.run_id, plan.program, os.getpid(), dict(gpus), cpus, gpu_ids)

        run.claim = claims.claim(
            choose,
            lambda record: record.launcher_is_dead,
            lambda holders: _held_by(plan.program, requests, holders),
            _RELEASE_WAIT_S,
        )
        return plan


def _equipped(
    plan: LaunchPlan, gpus: Mapping[str, Sequence[Device]], cpus: Mapping[str, tuple[int, ...]]
) -> LaunchPlan:
    workers = (
        replace(w, gpus=tuple(d.id for d in gpus.get(w.name, ())), cpus=cpus.get(w.name, ()))
        for w in plan.workers
    )
    return replace(plan, workers=tuple(workers))


def _check_preload(workers: Sequence[WorkerPlan]) -> None:
    """Refuse a module to preload that does not exist, as far as one can tell without importing it."""
    for module in dict.fromkeys(
        m for w in workers if not w.process.python for m in w.process.preload
    ):
        package = module.partition(".")[0]
        try:
            is_there = package in sys.modules or importlib.util.find_spec(package) is not None
        except (ImportError, ValueError):
            is_there = True  # something is odd about it, and the import will say what
        if not is_there:
            raise DefinitionError(f"preload={module!r}: there is no module {package!r} here")


# GPUs.


def _requests(workers: Sequence[WorkerPlan]) -> list[GpuRequest]:
    return [
        GpuRequest(w.name, w.group, w.resources.gpus, w.resources.accelerator)
        for w in workers
        if w.resources.gpus
    ]


def unused_gpus(workers: Sequence[WorkerPlan]) -> str:
    """Return a note for the user if this host has GPUs and no worker gets any; else empty.

    This doesn't ask the driver, which takes up to a second: a program without GPUs shouldn't wait for it.
    """
    variable = os.environ.get(VISIBLE, "").strip()
    has_driver = bool(os.environ.get(inventory.FAKE)) or os.path.exists("/dev/nvidiactl")
    if variable in NONE_VISIBLE and (VISIBLE in os.environ or not has_driver):
        return ""
    where = f"although {VISIBLE}={variable} is set" if variable else "and this host has GPUs"
    return shortage.unused([(w.resources.gpus, w.process.env.get(VISIBLE)) for w in workers], where)


def _devices(requests: Sequence[GpuRequest]) -> list[Device]:
    """Return the GPUs that workers may get. Don't look for GPUs if there are no requests."""
    return visible(inventory.installed(), os.environ.get(VISIBLE)) if requests else []


def _held_by(program: str, requests: Sequence[GpuRequest], holders: Sequence[ClaimRecord]) -> str:
    """Return an error that lists what other runs hold."""
    lines = claims.holdings(holders, inventory.installed())
    demand = shortage.demand_of_gpus(requests)
    return (
        f"program {program!r} asks for {demand}; this host has as many, but other runs hold:"
        f"{lines}\nWait for them, or end one with `python -m launchpad stop RUN`."
    )


# CPUs and memory.


def _cpus(workers: Sequence[WorkerPlan], busy: Mapping[int, int]) -> dict[str, tuple[int, ...]]:
    """Return worker → CPUs of its own, for workers that ask for a whole number. The least used go first."""
    if not hasattr(os, "sched_setaffinity"):
        return {}
    free_cpus = iter(sorted(os.sched_getaffinity(0), key=lambda cpu: (busy.get(cpu, 0), cpu)))
    counts = {
        w.name: int(w.resources.cpus)
        for w in workers
        if w.resources.cpus and w.resources.cpus == int(w.resources.cpus)
    }
    return {name: tuple(sorted(next(free_cpus) for _ in range(n))) for name, n in counts.items()}


def _check_cpus_and_memory(workers: Sequence[WorkerPlan]) -> None:
    cpus = [(w.group, w.resources.cpus) for w in workers if w.resources.cpus is not None]
    n_asked = round(sum(n for _, n in cpus), 6)
    n_cpus = number_of_cpus()
    if n_asked > n_cpus:
        words = [(group, formatting.counted(n, "CPU")) for group, n in cpus]
        raise DefinitionError(
            f"{shortage.demand(words, f'{n_asked:g}')}, this host has {n_cpus} for us. Give fewer replicas,"
            " or smaller Resources(cpus=…); without cpus workers share all there are."
        )
    memory = [
        (w.group, w.resources.memory_bytes) for w in workers if w.resources.memory_bytes is not None
    ]
    total = sum(size for _, size in memory)
    most = out_of_memory.usable_bytes()
    if total > most:
        words = [(group, formatting.size(size)) for group, size in memory]
        raise DefinitionError(
            f"{shortage.demand(words, formatting.size(total))}, this host has {formatting.size(most)} of"
            " memory. Give fewer replicas, or smaller Resources(memory=…)."
        )
