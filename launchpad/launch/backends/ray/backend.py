"""`ray`: the backend. What starts, watches and ends workers on a cluster is in `workers`."""

from __future__ import annotations

from collections.abc import Callable

from launchpad.address import COURIER
from launchpad.events import Event
from launchpad.launch.backends.backend import Backend, Workers
from launchpad.launch.backends.launch_origin import LauncherInfo
from launchpad.launch.detached import Detached
from launchpad.launch.plan import LaunchPlan
from launchpad.launch.rundir.directory import RunDirectory


class Ray(Backend):
    """For programs that want more than one machine, or a cluster that is there already."""

    def __init__(self, origin: LauncherInfo | None = None) -> None:
        self._origin = origin
        """The launching script, for one that launches in its place."""

    def endpoint(self, address: str, kind: str) -> str:
        """Wherever Ray places its worker, at a port that is free there."""
        return "tcp:{node}:0" if kind == COURIER else "{node}:0"

    def start(
        self, plan: LaunchPlan, run: RunDirectory, report: Callable[[Event], None]
    ) -> Workers:
        """Connects to the cluster, and asks it for room."""
        from launchpad.launch.backends.ray.workers import RayWorkers

        return RayWorkers(plan, run, report, self._origin or LauncherInfo.here())

    def detach(self, plan: LaunchPlan, grace_s: float) -> Detached:
        """Leaves it to a supervisor in the cluster."""
        from launchpad.launch.backends.ray import detached_runs

        return detached_runs.launch_detached(plan, Ray(LauncherInfo.here()), grace_s)

    def detached(self) -> list[Detached]:
        """Those on the cluster that $RAY_ADDRESS names."""
        from launchpad.launch.backends.ray import detached_runs

        return detached_runs.detached()


class TestRay(Ray):
    """`test_ray`: the same, for unit tests."""

    __test__ = False  # no test case, whatever pytest makes of the name
    is_test = True
