"""Placement groups: the workers that Ray places together, their resources, and the reservation.

A group that asks for resources, or for a placement, is one bundle group: Ray reserves room for the whole
group or for nothing. The processes of a MultiProcessingColocation form a bundle group, too, and must be on
one node. Workers that ask for nothing belong to no bundle group. They are spread over the nodes.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from launchpad.launch.backends.ray import cluster
from launchpad.launch.plan import WorkerPlan
from launchpad.resources import PACK, STRICT_PACK

_log = logging.getLogger("launchpad.ray")

PENDING_S = 60.0
"""How long a group waits for room that other programs occupy."""

_SPREAD = {"num_cpus": 0, "num_gpus": 0, "scheduling_strategy": "SPREAD"}

_NODE_LABEL = "ray.io/node-id"
"""A label that Ray gives to each node."""

_LEAST = {"memory": 1.0}
"""The bundle of a worker that needs nothing: one byte, since Ray refuses an empty bundle."""


@dataclass(frozen=True)
class BundleGroup:
    """Workers that are placed together.

    Attributes:
        strategy: Ray's name for the placement: PACK, SPREAD, STRICT_PACK, STRICT_SPREAD.
        bundles: The resources of each worker, in the order of `workers`, by Ray's names.
        labels: The labels of the nodes that the workers may be on.
    """

    name: str
    strategy: str
    workers: tuple[str, ...]
    bundles: tuple[Mapping[str, float], ...]
    labels: Mapping[str, str]


def bundle_groups_of(workers: Sequence[WorkerPlan]) -> list[BundleGroup]:
    """Return the bundle groups of a plan. Pure."""
    together: dict[str, list[WorkerPlan]] = {}
    for worker in workers:
        together.setdefault(worker.colocation or worker.group, []).append(worker)
    groups = []
    for name, members in together.items():
        bundles = []
        for resources in (member.resources for member in members):
            kind = f"accelerator_type:{resources.accelerator}"
            bundle = {
                "CPU": float(resources.cpus or 0),
                "GPU": float(resources.gpus),
                "memory": float(resources.memory_bytes or 0),
                kind: 0.001 if resources.accelerator else 0.0,
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


def spread_options(avoid: Collection[str], nodes: Collection[str]) -> dict[str, Any]:
    """Return the options of an actor that belongs to no bundle group: Ray reserves nothing, nodes take turns.

    Pure.

    Args:
        avoid: The ids of nodes that it can't be on, unless there are no others.
        nodes: The ids of the nodes that Ray takes for alive.
    """
    avoided = sorted(set(avoid).intersection(nodes))
    if not avoided or len(avoided) == len(nodes):
        return _SPREAD
    # Ray has a random node, possibly a silent one, find room for an actor that asks for nothing. If the actor
    # asks for a byte, Ray uses the node of this process for that.
    labels = {_NODE_LABEL: f"!in({','.join(avoided)})"}
    return {**_SPREAD, "memory": 1, "label_selector": labels}


class Placement:
    """The room of one bundle group. Ray reserves it at once if it is free, else when it becomes free.

    Args:
        then: Called in a thread of Ray's when the room is reserved.

    Attributes:
        reserved: Ray's placement group.
        is_ready: True if the room is reserved, as far as is known. `then` sets this attribute.
    """

    def __init__(self, bundle_group: BundleGroup, then: Callable[[Placement], None]) -> None:
        self.bundle_group = bundle_group
        self._then = then
        selectors = [dict(bundle_group.labels) for _ in bundle_group.bundles]
        _log.debug(
            "asking Ray for a placement group %s of %s", bundle_group.name, bundle_group.bundles
        )
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

    def node_of(self, worker: str) -> str:
        """Return the id of the node with the worker's room; empty if Ray has not reserved it."""
        table = cluster.load().util.placement_group_table(self.reserved)
        index = self.bundle_group.workers.index(worker)
        return str(table["bundles_to_node_id"].get(index, ""))

    def options(self, worker: str) -> dict[str, Any]:
        """Return the options with which Ray makes the actor of a worker of this group."""
        from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

        index = self.bundle_group.workers.index(worker)
        bundle = self.bundle_group.bundles[index]
        custom = {n: much for n, much in bundle.items() if n not in ("CPU", "GPU", "memory")}
        return {
            "num_cpus": bundle.get("CPU", 0),
            "num_gpus": bundle.get("GPU", 0),
            "memory": bundle.get("memory", 0) or None,
            "resources": custom or None,
            "scheduling_strategy": PlacementGroupSchedulingStrategy(
                placement_group=self.reserved, placement_group_bundle_index=index
            ),
        }
