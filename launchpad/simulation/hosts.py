"""Simulated hosts: what they have, how often they fail, and which of them a worker gets."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from launchpad.courier import formatting
from launchpad.courier.checks import is_number, is_whole
from launchpad.errors import DefinitionError, refuse_unless
from launchpad.launch.devices import shortage
from launchpad.launch.plan import WorkerPlan
from launchpad.resources import Resources

_KINDS = ("cpus", "gpus", "memory")
_ROUNDING = 1e-9
"""The largest error of a sum of shares, such as ten times 0.1 GPU."""


@dataclass(frozen=True)
class SimulatedHosts:
    """Hosts of one kind, for `lp.simulate`.

    Example:
        hosts = [
            lp.SimulatedHosts(2, cpus=64, gpus=8),                            # they never fail
            lp.SimulatedHosts(20, cpus=16, mtbf_s=7 * 86_400, repair_s=3600),
        ]

    Attributes:
        count: The number of hosts.
        cpus: The CPUs of each host. None means that there is no limit; it is the same for GPUs and memory.
        gpus: The GPUs of each host.
        memory: The memory of each host, in bytes or as text with a unit such as `"64GiB"`.
        mtbf_s: The mean time between failures of each host, in seconds of the time that it is up. The times
            have an exponential distribution.
        repair_s: How long a host that has failed is away, in seconds.

    Raises:
        DefinitionError: a value is not valid; the text says what is expected.
    """

    count: int
    cpus: float | None = None
    gpus: float | None = None
    memory: int | str | None = None
    mtbf_s: float = math.inf
    repair_s: float = 600.0

    def __post_init__(self) -> None:
        has_gpus = self.gpus is None or (is_number(self.gpus) and self.gpus >= 0)
        rules = (
            ("count", is_whole(self.count, at_least=1), "a whole number, 1 or more"),
            ("cpus", self.cpus is None or _is_positive(self.cpus), "more than 0, or None"),
            ("gpus", has_gpus, "0 or more, or None"),
            ("mtbf_s", _is_positive(self.mtbf_s), "seconds, more than 0"),
            (
                "repair_s",
                _is_positive(self.repair_s) and self.repair_s < math.inf,
                "seconds, more than 0",
            ),
        )
        refuse_unless(self, rules)
        Resources(memory=self.memory)  # refuses what is not a size

    def amounts(self) -> dict[str, float]:
        """Return what each host has: the kind of resource → the amount."""
        memory = Resources(memory=self.memory).memory_bytes
        has = {"cpus": self.cpus, "gpus": self.gpus, "memory": memory}
        return {kind: math.inf if amount is None else amount for kind, amount in has.items()}


class HostState:
    """The state of one simulated host.

    Attributes:
        free: What no worker has been given: the kind of resource → the amount.
        workers: The workers that it runs, in the order of their starts.
    """

    def __init__(self, name: str, kind: SimulatedHosts) -> None:
        self.name = name
        self.kind = kind
        self.is_up = True
        self.free = kind.amounts()
        self.workers: dict[str, None] = {}

    def fits(self, resources: Resources) -> bool:
        """Return True if the host is up, and has room for a worker with these resources."""
        return self.is_up and all(
            amount <= self.free[kind] + _ROUNDING for kind, amount in demand_of(resources).items()
        )

    def add(self, worker: WorkerPlan) -> None:
        """Give a worker what it asks for."""
        self.workers[worker.name] = None
        for kind, amount in demand_of(worker.resources).items():
            self.free[kind] -= amount

    def remove(self, worker: WorkerPlan) -> None:
        """Take back what a worker was given."""
        del self.workers[worker.name]
        for kind, amount in demand_of(worker.resources).items():
            self.free[kind] += amount


class RoundRobin:
    """The choice of hosts, in turn among those that have room."""

    def __init__(self, hosts: Sequence[HostState]) -> None:
        self._hosts = hosts
        self._next = 0

    def choose(self, resources: Resources) -> HostState | None:
        """Return the next host with room for these resources; None if no host has room."""
        n_hosts = len(self._hosts)
        for i in range(n_hosts):
            index = (self._next + i) % n_hosts
            if self._hosts[index].fits(resources):
                self._next = (index + 1) % n_hosts
                return self._hosts[index]
        return None


def demand_of(resources: Resources) -> dict[str, float]:
    """Return what a worker with these resources takes of a host: the kind of resource → the amount."""
    return {
        "cpus": resources.cpus or 0.0,
        "gpus": resources.gpus,
        "memory": resources.memory_bytes or 0,
    }


def hosts_of(kinds: Sequence[SimulatedHosts]) -> list[HostState]:
    """Return the hosts: `host-0`, `host-1`, …, in the order of their kinds."""
    all_kinds = [kind for kind in kinds for _ in range(kind.count)]
    return [HostState(f"host-{i}", kind) for i, kind in enumerate(all_kinds)]


def check_room(workers: Sequence[WorkerPlan], kinds: Sequence[SimulatedHosts]) -> None:
    """Check that all workers have room on the hosts at the same time.

    Raises:
        DefinitionError: they don't; the text shows the arithmetic.
    """
    hosts = hosts_of(kinds)
    for kind in _KINDS:
        supply = sum(host.free[kind] for host in hosts)
        total = sum(demand_of(worker.resources)[kind] for worker in workers)
        if total > supply + _ROUNDING:
            amounts = [
                (worker.group, _shown(kind, demand_of(worker.resources)[kind]))
                for worker in workers
                if demand_of(worker.resources)[kind]
            ]
            raise DefinitionError(
                f"{shortage.demand(amounts, _shown(kind, total))}, the {len(hosts)} simulated hosts have"
                f" {_shown(kind, supply)}. Give fewer replicas, smaller Resources({kind}=…), or more"
                " lp.SimulatedHosts."
            )
    round_robin = RoundRobin(hosts)
    for worker in workers:
        host = round_robin.choose(worker.resources)
        if host is None:
            n_placed = sum(len(host.workers) for host in hosts)
            raise DefinitionError(
                f"{worker.name} asks for {worker.resources.asked()}, and none of the {len(hosts)} simulated"
                f" hosts has that left after {n_placed} of {len(workers)} workers; {_largest(hosts)}. Give"
                " fewer replicas, smaller resources, or more lp.SimulatedHosts."
            )
        host.add(worker)


def _largest(hosts: Sequence[HostState]) -> str:
    """Return how much is left on the hosts that have the most of it left."""
    most = {kind: max(host.free[kind] for host in hosts) for kind in _KINDS}
    parts = [_shown(kind, amount) for kind, amount in most.items() if amount < math.inf]
    return f"at most {', '.join(parts)} are left on one host"


def _shown(kind: str, amount: float) -> str:
    if kind == "memory":
        return f"{formatting.size(amount)} of memory"
    return formatting.counted(round(amount, 6), kind.removesuffix("s").upper())


def _is_positive(value: object) -> bool:
    return is_number(value) and value > 0
