"""The spec of a worker: its plan, and all that it must know about its launch.

    node ── plan ──▶ WorkerPlan ── launch ──▶ WorkerSpec ── context_of, in the worker ──▶ RunContext

A backend makes the spec once the launch has begun, because endpoints and folders are final then. The spec is
plain data, so it can be pickled for a worker on another host.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field

from launchpad.courier.light_dataclass import dataclass
from launchpad.launch.plan import WorkerPlan
from launchpad.state.places import StatePlaces


@dataclass(frozen=True)
class WorkerSpec:
    """One worker to run, with what its process needs to know about the launch.

    Attributes:
        program: The name of its program.
        endpoints: Address name → endpoint, of all workers.
        state: The places where the worker leaves what its next attempt will find.
        can_move: True if servers may be somewhere else after a restart. Then `endpoints` may be a mapping
            that changes, and that lacks servers which are not ready.
        listens_at: Where its servers listen for workers on other hosts: `tcp:10.0.0.5:0`.
        known_as: Address → the endpoint at which other workers find it, if its server listens at a different
            one.
    """

    plan: WorkerPlan
    program: str
    launch_type: str
    endpoints: Mapping[str, str]
    state: StatePlaces
    can_move: bool = False
    listens_at: str = ""
    known_as: Mapping[str, str] = field(default_factory=dict)
