"""The choice of a node for each worker, on nodes that launchpad itself fills. Pure.

1. The processes of a MultiProcessingColocation are on one node.
2. A node is given no more than it has: CPUs, memory, GPUs. Requests that are hard to place are placed first.
3. Among the nodes with room, a group's `placement` decides, and else the number of workers for each CPU.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from launchpad.courier import formatting
from launchpad.launch.devices.allocation import GpuRequest, allocate
from launchpad.launch.devices.device import Device, listed
from launchpad.launch.devices.shortage import demand
from launchpad.launch.plan import WorkerPlan
from launchpad.resources import PACK, SPREAD, STRICT_PACK, STRICT_SPREAD

_NEAR_ZERO = 1e-6


@dataclass(frozen=True)
class NodeSupply:
    """The resources that a node has for workers.

    Attributes:
        devices: Its GPUs.
        taken: Uuid → the units of that GPU that other programs hold.
    """

    cpus: float = 0.0
    memory_bytes: int = 0
    devices: Sequence[Device] = ()
    taken: Mapping[str, int] = field(default_factory=dict)

    def __str__(self) -> str:
        parts = [formatting.counted(self.cpus, "CPU"), formatting.size(self.memory_bytes)]
        if self.devices:
            parts.append(formatting.counted(len(self.devices), "GPU"))
        return ", ".join(parts)


@dataclass(frozen=True)
class Place:
    """A worker's node, and its GPUs there in the form of CUDA_VISIBLE_DEVICES."""

    node: str
    gpus: tuple[str, ...] = ()


@dataclass
class _Node:
    """A node, and what its workers take of it."""

    supply: NodeSupply
    cpus: float = 0.0
    memory_bytes: int = 0
    units: Counter[str] = field(default_factory=Counter)
    groups: Counter[str] = field(default_factory=Counter)
    colocations: Counter[str] = field(default_factory=Counter)
    n_workers: int = 0

    def __post_init__(self) -> None:
        self.units.update(self.supply.taken)

    def add(self, taken: _Taken, sign: int = 1) -> None:
        """Give a worker what it takes. With `sign=-1`, take it back."""
        worker = taken.worker
        n_units = sign * _gpu_request(worker).units
        self.cpus += sign * (worker.resources.cpus or 0)
        self.memory_bytes += sign * (worker.resources.memory_bytes or 0)
        self.units.update({device.uuid: n_units for device in taken.devices})
        self.groups[worker.group] += sign
        self.colocations[worker.colocation] += sign
        self.n_workers += sign


@dataclass(frozen=True)
class _Taken:
    """A worker, and what it takes of its node."""

    worker: WorkerPlan
    node: str
    devices: Sequence[Device]


def units(workers: Iterable[WorkerPlan]) -> list[list[WorkerPlan]]:
    """Return lists of workers that share one node. Most lists have one worker."""
    together: dict[str, list[WorkerPlan]] = {}
    for worker in workers:
        together.setdefault(worker.colocation or worker.name, []).append(worker)
    return list(together.values())


class Room:
    """The nodes of a launch, and the room that its workers leave on them.

    Example:
        room = Room()
        room.add("h1", NodeSupply(cpus=8, memory_bytes=2**35))
        room.place_all(plan.workers)
    """

    def __init__(self) -> None:
        self._nodes: dict[str, _Node] = {}
        self._taken: dict[str, _Taken] = {}

    def add(self, node: str, supply: NodeSupply) -> None:
        """Add a node, which may have been removed before."""
        self._nodes[node] = _Node(supply)

    def remove(self, node: str) -> None:
        """Remove a node that is gone. Its workers have no place any more."""
        del self._nodes[node]
        self._taken = {name: taken for name, taken in self._taken.items() if taken.node != node}

    def release(self, worker: str) -> None:
        """Take back the place of a worker that has ended, if it has one."""
        taken = self._taken.pop(worker, None)
        if taken is not None:
            self._nodes[taken.node].add(taken, sign=-1)

    def place_of(self, worker: str) -> Place | None:
        """Return the place of a worker; None if it has none."""
        taken = self._taken.get(worker)
        if taken is None:
            return None
        return Place(taken.node, tuple(device.id for device in taken.devices))

    def place_all(self, workers: Sequence[WorkerPlan]) -> None:
        """Give each worker a place.

        Raises:
            ValueError: the nodes don't have what the workers ask for; the text shows the arithmetic.
        """
        why = self._too_little(workers)
        if why:
            raise ValueError(why)
        for unit in sorted(indivisible(workers), key=difficulty, reverse=True):
            if not self.place(unit):
                raise ValueError(f"no host has room for {_asked(unit)}: {self._left()}")

    def place(self, unit: Sequence[WorkerPlan]) -> bool:
        """Give the workers of one unit a place on one node. Return False if no node has room for them."""
        fitting = []
        for name, node in self._nodes.items():
            devices = _fit(node, unit)
            if devices is not None and self._allows(name, unit[0]):
                fitting.append((self._preference(node, unit[0]), name, devices))
        if not fitting:
            return False
        _, name, devices = min(fitting, key=lambda entry: entry[:2])
        for worker in unit:
            taken = _Taken(worker, name, devices[worker.name])
            self._taken[worker.name] = taken
            self._nodes[name].add(taken)
        return True

    def _allows(self, name: str, worker: WorkerPlan) -> bool:
        """Return True if this node may have the worker besides the other workers of the launch."""
        nodes = self._nodes.values()
        if worker.colocation and any(node.colocations[worker.colocation] for node in nodes):
            return self._nodes[name].colocations[worker.colocation] > 0
        of_group = self._nodes[name].groups[worker.group]
        if worker.resources.placement == STRICT_SPREAD:
            return of_group == 0
        if worker.resources.placement == STRICT_PACK:
            return of_group > 0 or not any(node.groups[worker.group] for node in nodes)
        return True

    def _preference(self, node: _Node, worker: WorkerPlan) -> tuple[float, float]:
        """Return a number for each node with room; the node with the lowest is taken."""
        load = node.n_workers / max(1.0, node.supply.cpus)
        of_group = node.groups[worker.group]
        if worker.resources.placement == PACK:
            return -of_group, load
        if worker.resources.placement == SPREAD:
            return of_group, load
        return 0, load

    def _too_little(self, workers: Sequence[WorkerPlan]) -> str:
        """Return why there is too little of something in total; empty if there is enough."""
        asked_cpus = [(w.group, w.resources.cpus) for w in workers if w.resources.cpus is not None]
        n_cpus = sum(node.supply.cpus for node in self._nodes.values())
        total_cpus = round(sum(cpus for _, cpus in asked_cpus), 6)
        if total_cpus > n_cpus + _NEAR_ZERO:
            words = [(group, formatting.counted(cpus, "CPU")) for group, cpus in asked_cpus]
            return (
                f"{demand(words, f'{total_cpus:g}')}, and the hosts have {n_cpus:g}: {self._all()}"
            )
        asked_gpus = [(w.group, w.resources.gpus) for w in workers if w.resources.gpus]
        n_gpus = sum(len(node.supply.devices) for node in self._nodes.values())
        total_gpus = round(sum(gpus for _, gpus in asked_gpus), 4)
        if total_gpus > n_gpus:
            words = [(group, formatting.counted(gpus, "GPU")) for group, gpus in asked_gpus]
            return f"{demand(words, f'{total_gpus:g}')}, and the hosts have {n_gpus}: {self._all()}"
        return ""

    def _all(self) -> str:
        return "; ".join(f"{name} {node.supply}" for name, node in self._nodes.items())

    def _left(self) -> str:
        """Return what is left on each node."""
        parts = []
        for name, node in self._nodes.items():
            cpus = node.supply.cpus - node.cpus
            memory = node.supply.memory_bytes - node.memory_bytes
            gpus = [device.id for device in node.supply.devices if not node.units[device.uuid]]
            free = f"GPUs {','.join(gpus)}" if gpus else "no GPU"
            left = f"{formatting.counted(cpus, 'CPU')}, {formatting.size(memory)}, {free}"
            taken = [d.id for d in node.supply.devices if node.supply.taken.get(d.uuid)]
            others = f", and other programs hold {listed(taken)}" if taken else ""
            parts.append(f"{name} has {left} left{others}")
        return "; ".join(parts)


def refusal(workers: Sequence[WorkerPlan], hosts: str) -> str:
    """Return why no nodes can satisfy these workers; empty if they might.

    Args:
        hosts: The nodes in the error's words, for example `the nodes of a Slurm job`.
    """
    for worker in workers:
        if worker.resources.labels:
            return (
                f"{worker.group} wants labels={dict(worker.resources.labels)!r}, and {hosts} have none:"
                " leave it out, or take 'ray' or 'kubernetes'"
            )
    return ""


def indivisible(workers: Sequence[WorkerPlan]) -> list[list[WorkerPlan]]:
    """Return the units, with all workers of a group that wants one node (`strict_pack`) in one of them."""
    joined: dict[str, list[WorkerPlan]] = {}
    for unit in units(workers):
        is_together = unit[0].resources.placement == STRICT_PACK
        joined.setdefault(unit[0].group if is_together else unit[0].name, []).extend(unit)
    return list(joined.values())


def _gpu_request(worker: WorkerPlan) -> GpuRequest:
    resources = worker.resources
    return GpuRequest(worker.name, worker.group, resources.gpus, resources.accelerator)


def _fit(node: _Node, unit: Sequence[WorkerPlan]) -> dict[str, Sequence[Device]] | None:
    """Return worker → its GPUs on this node; None if the node has no room for all of the unit."""
    cpus = sum(worker.resources.cpus or 0 for worker in unit)
    memory = sum(worker.resources.memory_bytes or 0 for worker in unit)
    if node.cpus + cpus > node.supply.cpus + _NEAR_ZERO:
        return None
    if node.memory_bytes + memory > node.supply.memory_bytes:
        return None
    requests = [_gpu_request(worker) for worker in unit if worker.resources.gpus]
    none: dict[str, Sequence[Device]] = {worker.name: () for worker in unit}
    if not requests:
        return none
    devices = allocate(node.supply.devices, requests, node.units)
    return None if devices is None else {**none, **devices}


def difficulty(unit: Sequence[WorkerPlan]) -> tuple[float, ...]:
    """Return a key that is larger for units that fewer nodes have room for."""
    is_strict = any(w.resources.placement in (STRICT_PACK, STRICT_SPREAD) for w in unit)
    gpus = sum(math.ceil(worker.resources.gpus) for worker in unit)
    memory = sum(worker.resources.memory_bytes or 0 for worker in unit)
    return is_strict, gpus, sum(worker.resources.cpus or 0 for worker in unit), memory


def _asked(unit: Sequence[WorkerPlan]) -> str:
    """Return text like `learner-1 (2 GPUs, 4 CPUs)`."""
    names = ", ".join(worker.name for worker in unit)
    asked = " + ".join(filter(None, (worker.resources.asked() for worker in unit)))
    return f"{names} ({asked})" if asked else names
