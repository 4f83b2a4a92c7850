"""Finds runs on a cluster whose launcher is elsewhere or was killed, by their label.

Without a launcher no worker of such a run is restarted; its pods run on meanwhile.
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Iterator
from typing import Any

from launchpad.errors import LaunchError
from launchpad.launch.backends.kubernetes.api import permissions
from launchpad.launch.backends.kubernetes.api.client import ApiError, Cluster, Unreachable
from launchpad.launch.backends.kubernetes.api.http_client import Api
from launchpad.launch.backends.kubernetes.detached import launcher_manifests
from launchpad.launch.backends.kubernetes.detached.detached_run import (
    DetachedRun,
    acts,
    launcher_pod,
)
from launchpad.launch.backends.kubernetes.manifests import names
from launchpad.launch.backends.kubernetes.settings import FILE, Settings
from launchpad.launch.detached import Detached
from launchpad.launch.rundir.record import RunRecord

_FORBIDDEN = 403
_ROOTS = f"app.kubernetes.io/managed-by=launchpad,{names.ROLE}=root"


def detached() -> list[Detached]:
    """The runs on the cluster of $KUBECONFIG; none if neither that is set nor $LAUNCHPAD_KUBERNETES.

    Raises:
        LaunchError: the cluster does not answer, or this user may not list them; it names the right.
    """
    if not os.environ.get("KUBECONFIG") and not os.environ.get(FILE):
        return []
    return runs_on(Api(Settings.of({}).namespace))


def runs_on(cluster: Cluster) -> list[Detached]:
    """The runs on a cluster."""
    with _explained(cluster, "runs on the cluster cannot be listed"):
        roots, _ = cluster.list("Secret", _ROOTS)
    found: list[Detached] = []
    for root in (each["metadata"] for each in roots):
        try:
            record = RunRecord(**json.loads(root["annotations"][names.RECORD]))
        except (KeyError, TypeError, ValueError):  # of another version, or no run of launchpad
            continue
        name, launcher = root["name"], launcher_manifests.name(root["name"])
        run = DetachedRun(cluster, name, record.workers)
        if launcher in [each["name"] for each in root.get("ownerReferences", ())]:
            is_asked = acts(launcher_pod(cluster, launcher))
            run = DetachedRun(cluster, name, record.workers, launcher, is_asked)
        found.append(explained(cluster, record, run))
    return found


def explained(cluster: Cluster, record: RunRecord, run: DetachedRun) -> Detached:
    """The run; refusals of the cluster become a LaunchError that names the missing rights."""

    def call(method: str, *arguments: Any) -> Any:
        with _explained(cluster, "the cluster does not tell of this run"):
            return getattr(run, method)(*arguments)

    return Detached(record, call)


@contextlib.contextmanager
def _explained(cluster: Cluster, failure: str) -> Iterator[None]:
    try:
        yield
    except (ApiError, Unreachable) as error:
        if isinstance(error, ApiError) and error.status == _FORBIDDEN:
            permissions.check(cluster, permissions.DETACHED)
        raise LaunchError(f"{failure}: {error}") from error
