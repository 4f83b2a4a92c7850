"""Bundle groups: which workers Ray places together, and what each of them asks for. Pure.

A group that asks for resources, or says how it wants to be placed, is one: Ray reserves room for all of it
or for none. So are the processes of a MultiProcessingColocation, which must be on one node. Workers that ask
for nothing belong to none; they are spread over the nodes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from launchpad.launch.plan import WorkerPlan
from launchpad.resources import Resources

_LEAST = {"memory": 1.0}
"""Ray reserves no room for nothing; this is a byte."""


@dataclass(frozen=True)
class BundleGroup:
    """Workers that are placed together.

    Attributes:
        strategy: Ray's word for how: PACK, SPREAD, STRICT_PACK, STRICT_SPREAD.
        bundles: What each of the workers needs, in their order.
        labels: Which nodes they may be on.
    """

    name: str
    strategy: str
    workers: tuple[str, ...]
    bundles: tuple[Mapping[str, float], ...]
    labels: Mapping[str, str]


def bundle_groups_of(workers: Sequence[WorkerPlan]) -> list[BundleGroup]:
    """The gangs of a plan."""
    together: dict[str, list[WorkerPlan]] = {}
    for worker in workers:
        together.setdefault(_group_name(worker), []).append(worker)
    return [
        _bundle_group(name, members)
        for name, members in together.items()
        if _is_placed_together(members)
    ]


def demand(resources: Resources) -> dict[str, float]:
    """What a worker asks for, by Ray's names."""
    asked = {
        "CPU": float(resources.cpus or 0),
        "GPU": float(resources.gpus),
        "memory": float(resources.memory_bytes or 0),
        f"accelerator_type:{resources.accelerator}": 0.001 if resources.accelerator else 0.0,
    }
    return {name: amount for name, amount in asked.items() if amount}


def _bundle_group(name: str, members: list[WorkerPlan]) -> BundleGroup:
    strategy = members[0].resources.placement or "pack"
    return BundleGroup(
        name=name,
        strategy="STRICT_PACK" if members[0].colocation else strategy.upper(),
        workers=tuple(member.name for member in members),
        bundles=tuple(demand(member.resources) or _LEAST for member in members),
        labels=members[0].resources.labels,
    )


def _group_name(worker: WorkerPlan) -> str:
    return worker.colocation or worker.group


def _is_placed_together(members: list[WorkerPlan]) -> bool:
    resources = members[0].resources
    asks = demand(resources) or resources.labels or resources.placement
    return bool(asks or members[0].colocation)
