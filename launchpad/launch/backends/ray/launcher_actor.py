"""The launcher of a program that was left on a cluster, as an actor. Imported when there is to be one."""

from __future__ import annotations

import threading
from typing import Any

from launchpad.launch.backends.backend import Backend
from launchpad.launch.backends.ray import cluster
from launchpad.launch.plan import LaunchPlan
from launchpad.launch.remote_launcher import RemoteLauncher


class LauncherActor(RemoteLauncher):
    """A launcher that is a Ray actor."""

    def begin(self, plan: LaunchPlan, backend: Backend, grace_s: float) -> dict[str, Any]:
        """Launches, and goes when the program has ended."""
        record = super().begin(plan, backend, grace_s)
        ray = cluster.load()
        threading.Thread(
            target=self.linger,
            args=(lambda: ray.kill(ray.get_runtime_context().current_actor),),
            daemon=True,
        ).start()
        return record
