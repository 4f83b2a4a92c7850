"""Placement groups: which workers Ray places together, what each of them asks for, and the reservation.

A group that asks for resources, or says how it wants to be placed, is one bundle group: Ray reserves room for
all of it or for none. So are the processes of a MultiProcessingColocation, which must be on one node. Workers
that ask for nothing belong to none; they are spread over the nodes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from launchpad.launch.backends.ray import cluster
from launchpad.launch.plan import WorkerPlan
from launchpad.resources import PACK, STRICT_PACK

PENDING_S = 60.0
"""How long a group waits for room that others have now."""

SPREAD_OPTIONS = {"num_cpus": 0, "num_gpus": 0, "scheduling_strategy": "SPREAD"}
"""What an actor is made with that belongs to no bundle group: nothing is reserved, and nodes take turns."""

_LEAST = {"memory": 1.0}
"""Ray reserves no room for nothing; this is a byte."""


@dataclass(frozen=True)
class BundleGroup:
    """Workers that are placed together.

    Attributes:
        strategy: Ray's word for how: PACK, SPREAD, STRICT_PACK, STRICT_SPREAD.
        bundles: What each of the workers needs, in their order, by Ray's names.
        labels: Which nodes they may be on.
    """

    name: str
    strategy: str
    workers: tuple[str, ...]
    bundles: tuple[Mapping[str, float], ...]
    labels: Mapping[str, str]


def bundle_groups_of(workers: Sequence[WorkerPlan]) -> list[BundleGroup]:
    """The bundle groups of a plan. Pure."""
    together: dict[str, list[WorkerPlan]] = {}
    for worker in workers:
        together.setdefault(worker.colocation or worker.group, []).append(worker)
    groups = []
    for name, members in together.items():
        bundles = []
        for asked in (member.resources for member in members):
            kind = f"accelerator_type:{asked.accelerator}"
            bundle = {
                "CPU": float(asked.cpus or 0),
                "GPU": float(asked.gpus),
                "memory": float(asked.memory_bytes or 0),
                kind: 0.001 if asked.accelerator else 0.0,
            }
            bundles.append({name: amount for name, amount in bundle.items() if amount})
        first = members[0]
        chooses = first.resources.labels or first.resources.placement
        if bundles[0] or chooses or first.colocation:
            placement = STRICT_PACK if first.colocation else first.resources.placement or PACK
            group = BundleGroup(
                name=name,
                strategy=placement.upper(),
                workers=tuple(member.name for member in members),
                bundles=tuple(bundle or _LEAST for bundle in bundles),
                labels=first.resources.labels,
            )
            groups.append(group)
    return groups


class Placement:
    """The room of one bundle group. Reserved at once if there is some, else when others leave it.

    Args:
        then: Called in some thread of Ray's when the room is there.

    Attributes:
        reserved: Ray's placement group.
        is_ready: Whether the room is there, as far as Ray has said.
    """

    def __init__(self, bundle_group: BundleGroup, then: Callable[[Placement], None]) -> None:
        self.bundle_group, self._then = bundle_group, then
        selectors = [dict(bundle_group.labels) for _ in bundle_group.bundles]
        self.reserved: Any = cluster.load().util.placement_group(
            [dict(bundle) for bundle in bundle_group.bundles],
            strategy=bundle_group.strategy,
            bundle_label_selector=selectors if bundle_group.labels else None,
        )
        self.wait()

    def wait(self) -> None:
        self.is_ready = False
        self.reserved.ready().future().add_done_callback(lambda _: self._then(self))

    def is_lost(self) -> bool:
        """Return True if a node with some of the room has died. Ray then looks for other room."""
        table = cluster.load().util.placement_group_table(self.reserved)
        return bool(table["state"] != "CREATED")

    def options(self, worker: str) -> dict[str, Any]:
        """Return the options with which Ray makes the actor of a worker of this group."""
        from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

        index = self.bundle_group.workers.index(worker)
        bundle = self.bundle_group.bundles[index]
        others = {n: much for n, much in bundle.items() if n not in ("CPU", "GPU", "memory")}
        return {
            "num_cpus": bundle.get("CPU", 0),
            "num_gpus": bundle.get("GPU", 0),
            "memory": bundle.get("memory", 0) or None,
            "resources": others or None,
            "scheduling_strategy": PlacementGroupSchedulingStrategy(
                placement_group=self.reserved, placement_group_bundle_index=index
            ),
        }
