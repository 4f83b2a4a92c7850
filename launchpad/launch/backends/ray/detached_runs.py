"""Away: programs whose supervisor is in the cluster, too: how they are left there, and found again.

Their steward is an actor that Ray keeps when the script has gone that made it. Its name begins with
`steward-`, in our namespace: so others find it. It has the run's secrets in memory, and gives them to nobody.
"""

from __future__ import annotations

import contextlib
import os
import threading
from functools import partial
from typing import Any

from launchpad.errors import LaunchError
from launchpad.launch.backends.backend import Backend
from launchpad.launch.backends.ray import cluster
from launchpad.launch.detached import Detached
from launchpad.launch.plan import LaunchPlan
from launchpad.launch.remote_launcher import RemoteLauncher
from launchpad.launch.rundir.record import RunRecord

_PREFIX = "steward-"
_ANSWER_S = 30.0
_BEGIN_S = 600.0
"""Before a steward can begin, Ray may have to install what the script's `runtime_env` names."""

_AT_ONCE = 64


class LauncherActor(RemoteLauncher):
    """A steward that is a Ray actor."""

    def begin(self, plan: LaunchPlan, backend: Backend, grace_s: float) -> dict[str, Any]:
        """Launches, and goes when the program has ended."""
        record = super().begin(plan, backend, grace_s)
        threading.Thread(target=self.linger, args=(_leave,), daemon=True).start()
        return record


def launch_detached(plan: LaunchPlan, backend: Backend, grace_s: float) -> Detached:
    """Has the cluster run a program on its own.

    Raises:
        LaunchError: there is no cluster that would go on, or it cannot hold the program.
    """
    cluster.connect()
    if cluster.ends_with_us():
        cluster.release()
        raise LaunchError(
            "detach=True needs a Ray cluster that outlives this script, and there is none: start one with"
            " `ray start --head`, and say where it is: RAY_ADDRESS=auto for the one on this machine"
        )
    actor = (
        cluster.load()
        .remote(LauncherActor)
        .options(
            name=_PREFIX + os.urandom(8).hex(),
            namespace=cluster.NAMESPACE,
            lifetime="detached",
            num_cpus=0,
            max_concurrency=_AT_ONCE,
        )
        .remote()
    )
    try:
        record = _call(actor, "begin", plan, backend, grace_s, timeout_s=_BEGIN_S)
    except BaseException:
        cluster.load().kill(actor)
        cluster.release()
        raise
    return _detached(record, actor)


def detached() -> list[Detached]:
    """Those that run on the cluster that $RAY_ADDRESS names; none if it names none."""
    if not os.environ.get("RAY_ADDRESS"):
        return []
    cluster.connect()
    ray = cluster.load()
    named = [
        each["name"]
        for each in ray.util.list_named_actors(all_namespaces=True)
        if each["namespace"] == cluster.NAMESPACE and each["name"].startswith(_PREFIX)
    ]
    found = []
    for name in named:
        with contextlib.suppress(LaunchError, ValueError):  # it has just gone, or hangs
            actor = ray.get_actor(name, namespace=cluster.NAMESPACE)
            if record := _call(actor, "record"):
                found.append(_detached(record, actor))
    return found


def _detached(record: dict[str, Any], actor: Any) -> Detached:
    return Detached(RunRecord(**record), partial(_call, actor))


def _call(actor: Any, method: str, *arguments: Any, timeout_s: float | None = None) -> Any:
    """Calls a method of a steward; its own errors are raised as they are."""
    ray = cluster.load()
    try:
        return ray.get(getattr(actor, method).remote(*arguments), timeout=timeout_s or _ANSWER_S)
    except ray.exceptions.RayTaskError as error:
        raise error.cause from None
    except (ray.exceptions.RayActorError, ray.exceptions.GetTimeoutError) as error:
        raise LaunchError(f"nobody answers for the program on the cluster: {error}") from error


def _leave() -> None:
    cluster.load().kill(cluster.load().get_runtime_context().current_actor)
