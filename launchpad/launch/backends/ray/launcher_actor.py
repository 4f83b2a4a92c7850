"""The launcher of a detached program, as an actor. This file is imported only to make that actor."""

from __future__ import annotations

import threading
import time
from typing import Any

from launchpad.launch.backends.backend import Backend
from launchpad.launch.backends.ray import cluster
from launchpad.launch.plan import LaunchPlan
from launchpad.launch.remote_launcher import RemoteLauncher

LINGER_S = 60.0
"""How long the launcher still answers after the program has ended, before it ends, too."""


class LauncherActor(RemoteLauncher):
    """A launcher that is a Ray actor."""

    def begin(self, plan: LaunchPlan, backend: Backend, grace_s: float) -> dict[str, Any]:
        """Launch a plan. End some time after the program, so that clients can ask how the program ended."""
        record = super().begin(plan, backend, grace_s)
        threading.Thread(target=self._linger, daemon=True).start()
        return record

    def _linger(self) -> None:
        while not self.wait(3600.0):
            continue
        time.sleep(LINGER_S)
        ray = cluster.load()
        ray.kill(ray.get_runtime_context().current_actor)
