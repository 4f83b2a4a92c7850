"""The plan of a program for a cluster: a plan that knows its manifests. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TypeVar

from launchpad.launch.backends.kubernetes.cluster.cluster import Manifest
from launchpad.launch.backends.kubernetes.objects import manifest, names
from launchpad.launch.backends.kubernetes.objects.run import Run
from launchpad.launch.backends.kubernetes.post import parcels, shared
from launchpad.launch.backends.kubernetes.settings import Settings
from launchpad.launch.plan import LaunchPlan

_P = TypeVar("_P", bound=LaunchPlan)

_RUN_ID = "00000000"
"""In the place of what a launch chooses at random."""

_MADE_AT_LAUNCH = b"made at launch: keys, and what the launching script was called with"


@dataclass(frozen=True)
class ClusterPlan(LaunchPlan):
    """What `lp.plan(program, "kubernetes", image=…)` returns."""

    settings: Settings = field(default_factory=Settings)

    def manifests(self) -> list[Manifest]:
        """The objects of a launch, in the order in which they are made; without what is secret or random."""
        name = names.run_name(self.program, _RUN_ID)
        workers = named(self, name).workers
        first = dict.fromkeys(shared.FILES, _MADE_AT_LAUNCH)
        stowed = parcels.stowed(first, manifest.contents(_MADE_AT_LAUNCH, workers))
        run = Run(self.program, name, self.settings, stowed.places)
        first, *boxes = stowed.boxes
        jobs = [manifest.job(run, worker, 1) for worker in workers]
        others = manifest.others(run, boxes)
        return [manifest.root(run, first), manifest.service(run), *others, *jobs]

    def shown(self) -> str:
        """The manifests."""
        return self.to_yaml()

    def to_yaml(self) -> str:
        """The manifests as YAML."""
        import yaml

        return str(yaml.safe_dump_all(self.manifests(), sort_keys=False))


def named(plan: _P, service: str) -> _P:
    """The plan with the name of the run in its addresses."""
    workers = [
        replace(w, endpoints={n: e.replace("{service}", service) for n, e in w.endpoints.items()})
        for w in plan.workers
    ]
    return replace(plan, workers=tuple(workers))
