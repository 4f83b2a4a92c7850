"""`ray`: the backend, and the programs that it detaches. The workers themselves are in `workers`.

The launcher of a detached program is an actor that Ray keeps after the script that made it has ended. Other
scripts find it in launchpad's namespace by its name, which begins with `launcher-`. It has the run's secrets
in memory, and passes them on only to the run's workers.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable
from functools import partial
from typing import Any

from launchpad.address import COURIER
from launchpad.errors import LaunchError
from launchpad.launch.backends.backend import Backend, Workers
from launchpad.launch.backends.launcher_info import LauncherInfo
from launchpad.launch.backends.ray import cluster
from launchpad.launch.detached import Detached
from launchpad.launch.plan import LaunchPlan
from launchpad.launch.rundir.directory import RunDirectory
from launchpad.launch.rundir.record import RunRecord
from launchpad.runtime.events import Event

_PREFIX = "launcher-"
_ANSWER_S = 30.0
_BEGIN_S = 600.0
"""Seconds for a launcher to begin. Ray may first need to install what the script's `runtime_env` names."""

_MAX_CONCURRENCY = 64
"""The number of calls that a launcher answers at the same time."""


class Ray(Backend):
    """The backend for programs that need more than one machine, or use a cluster that exists already."""

    def __init__(self, origin: LauncherInfo | None = None) -> None:
        self._origin = origin
        """The launching script, if this process launches for another process."""

    def endpoint(self, address: str, kind: str) -> str:
        """Return a template: Ray decides on the node, where the worker then takes a free port."""
        return "tcp:{node}:0" if kind == COURIER else "{node}:0"

    def create_workers(
        self, plan: LaunchPlan, run: RunDirectory, report: Callable[[Event], None]
    ) -> Workers:
        """Connect to the cluster, and ask it for room."""
        from launchpad.launch.backends.ray.workers import RayWorkers

        return RayWorkers(plan, run, report, self._origin or LauncherInfo.here())

    def detach(self, plan: LaunchPlan, grace_s: float) -> Detached:
        """Start a launcher in the cluster, and have it launch the plan.

        Raises:
            LaunchError: there is no cluster that outlives this script, or it can't hold the program.
        """
        backend = Ray(LauncherInfo.here())
        cluster.connect()
        ray = cluster.load()
        # This process has a head node if it has started the cluster itself, through launchpad or
        # `ray.init()`.
        node = ray._private.worker._global_node
        if node is not None and node.is_head():
            cluster.release()
            raise LaunchError(
                "detach=True needs a Ray cluster that outlives this script. Start one with"
                " `ray start --head`, and say where it is: RAY_ADDRESS=auto for the one on this machine"
            )
        from launchpad.launch.backends.ray.launcher_actor import LauncherActor

        launcher = ray.remote(LauncherActor).options(
            name=_PREFIX + os.urandom(8).hex(),
            namespace=cluster.NAMESPACE,
            lifetime="detached",
            num_cpus=0,
            max_concurrency=_MAX_CONCURRENCY,
        )
        actor = launcher.remote()
        try:
            record = _call(actor, "begin", plan, backend, grace_s, timeout_s=_BEGIN_S)
        except BaseException:
            ray.kill(actor)
            cluster.release()
            raise
        return Detached(RunRecord(**record), partial(_call, actor))

    def detached(self) -> list[Detached]:
        """Find the programs on the cluster that $RAY_ADDRESS names. Without it, find none."""
        if not os.environ.get("RAY_ADDRESS"):
            return []
        cluster.connect()
        ray = cluster.load()
        programs = []
        for entry in ray.util.list_named_actors(all_namespaces=True):
            name = entry["name"]
            namespace = entry["namespace"]
            if namespace != cluster.NAMESPACE or not name.startswith(_PREFIX):
                continue
            # The launcher may just have ended, or hang.
            with contextlib.suppress(LaunchError, ValueError):
                actor = ray.get_actor(name, namespace=namespace)
                record = _call(actor, "record")
                if record:
                    programs.append(Detached(RunRecord(**record), partial(_call, actor)))
        return programs


class TestRay(Ray):
    """`test_ray`: the same as `ray`, for unit tests."""

    __test__ = False  # pytest would take it for a test case
    is_test = True


def _call(actor: Any, method: str, *arguments: Any, timeout_s: float | None = None) -> Any:
    """Call a method of a launcher actor. Raise the errors of the method itself as they are."""
    ray = cluster.load()
    try:
        return ray.get(getattr(actor, method).remote(*arguments), timeout=timeout_s or _ANSWER_S)
    except ray.exceptions.RayTaskError as error:
        raise error.cause from None
    except (ray.exceptions.RayActorError, ray.exceptions.GetTimeoutError) as error:
        raise LaunchError(f"no launcher answers for the program on the cluster: {error}") from error
