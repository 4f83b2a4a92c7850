"""Placement: the room that Ray reserves for a bundle group."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from launchpad.launch.backends.ray import cluster, feasibility
from launchpad.launch.backends.ray.bundles import BundleGroup

PENDING_S = 60.0
"""How long a gang waits for room that others have now."""


class Placement:
    """One gang's room. Reserved at once if there is some, else when others leave it.

    Args:
        then: Called in some thread of Ray's when the room is there.

    Attributes:
        is_ready: Whether it is there, as far as we have heard.
    """

    def __init__(self, bundle_group: BundleGroup, then: Callable[[Placement], None]) -> None:
        from ray.util.placement_group import placement_group

        self.bundle_group, self._then = bundle_group, then
        selectors = (
            [dict(bundle_group.labels) for _ in bundle_group.bundles]
            if bundle_group.labels
            else None
        )
        self._group: Any = placement_group(
            [dict(bundle) for bundle in bundle_group.bundles],
            strategy=bundle_group.strategy,
            bundle_label_selector=selectors,
        )
        self.wait()

    def wait(self) -> None:
        """Begins to wait for the room."""
        self.is_ready = False
        self._group.ready().future().add_done_callback(lambda _: self._then(self))

    def is_lost(self) -> bool:
        """Whether a node has died that the room was on; Ray looks for other room then."""
        from ray.util.placement_group import placement_group_table

        return bool(placement_group_table(self._group)["state"] != "CREATED")

    def options(self, worker: str) -> dict[str, Any]:
        """What an actor of this gang is made with."""
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
                placement_group=self._group, placement_group_bundle_index=index
            ),
        }

    def why_not(self) -> str:
        """Why there is no room yet, with what is free now."""
        ray = cluster.load()
        free = ray.available_resources()
        asked: dict[str, float] = {}
        for bundle in self.bundle_group.bundles:
            for name, much in bundle.items():
                asked[name] = asked.get(name, 0.0) + much
        parts = [
            f"{feasibility.amount(name, much)} {name} (of {feasibility.there(name, cluster.nodes())},"
            f" {feasibility.amount(name, free.get(name, 0.0))} is free)"
            for name, much in asked.items()
        ]
        return f"{self.bundle_group.name} asks for {' and '.join(parts)}"

    def remove(self) -> None:
        """Gives the room back."""
        from ray.util.placement_group import remove_placement_group

        remove_placement_group(self._group)


def free_options() -> dict[str, Any]:
    """What an actor is made with that belongs to no gang: nothing is reserved, and nodes take turns."""
    return {"num_cpus": 0, "num_gpus": 0, "scheduling_strategy": "SPREAD"}
