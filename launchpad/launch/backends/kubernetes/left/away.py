"""Away: runs on a cluster whose launcher is elsewhere, or was killed: found by their label, and ended.

Nobody decides for such a run any more, whether a worker is started again, say; its pods go on meanwhile.
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any

from launchpad.errors import LaunchError
from launchpad.launch.backends.kubernetes.cluster import rights
from launchpad.launch.backends.kubernetes.cluster.api import Api
from launchpad.launch.backends.kubernetes.cluster.cluster import Cluster, Refused, Unreachable
from launchpad.launch.backends.kubernetes.left import supervisor
from launchpad.launch.backends.kubernetes.left.left import Left
from launchpad.launch.backends.kubernetes.left.supervised import Owned, Supervised
from launchpad.launch.backends.kubernetes.objects import labels
from launchpad.launch.backends.kubernetes.settings import FILE, Settings
from launchpad.launch.detached import Detached
from launchpad.launch.record import RunRecord

_FORBIDDEN = 403
_ROOTS = f"app.kubernetes.io/managed-by=launchpad,{labels.ROLE}=root"


def detached() -> list[Detached]:
    """Those on the cluster of $KUBECONFIG; none if neither that is set nor $LAUNCHPAD_KUBERNETES.

    Raises:
      LaunchError: the cluster does not answer, or does not let this user look; it names the right.
    """
    if not os.environ.get("KUBECONFIG") and not os.environ.get(FILE):
        return []
    return runs_on(Api(Settings.of({}).namespace))


def runs_on(cluster: Cluster) -> list[Detached]:
    """The runs on a cluster."""
    with _explained(cluster, "runs on the cluster cannot be listed"):
        roots, _ = cluster.list("Secret", _ROOTS)
    found = (_detached(cluster, root["metadata"]) for root in roots)
    return [each for each in found if each is not None]


def _detached(cluster: Cluster, root: Mapping[str, Any]) -> Detached | None:
    try:
        record = RunRecord(**json.loads(root["annotations"][labels.RECORD]))
    except (KeyError, TypeError, ValueError):  # of another version, or no run of ours
        return None
    return explained(cluster, record, _one(cluster, root, record))


def _one(cluster: Cluster, root: Mapping[str, Any], record: RunRecord) -> Left:
    """Whoever answers for it."""
    name, workers = root["name"], record.workers
    if supervisor.name(name) not in [each["name"] for each in root.get("ownerReferences", ())]:
        return Left(cluster, name, workers)
    supervised = Supervised(cluster, name, workers)
    return supervised if supervised.lives() else Owned(cluster, name, workers)


def explained(cluster: Cluster, record: RunRecord, one: Left) -> Detached:
    """The run; what the cluster refuses is said in the user's words."""
    return Detached(record, partial(_asked, cluster, one))


def _asked(cluster: Cluster, run: Left, method: str, *arguments: Any) -> Any:
    with _explained(cluster, "the cluster does not tell of this run"):
        return getattr(run, method)(*arguments)


@contextlib.contextmanager
def _explained(cluster: Cluster, failure: str) -> Iterator[None]:
    try:
        yield
    except (Refused, Unreachable) as error:
        if isinstance(error, Refused) and error.status == _FORBIDDEN:
            rights.check(cluster, rights.AWAY)
        raise LaunchError(f"{failure}: {error}") from error
