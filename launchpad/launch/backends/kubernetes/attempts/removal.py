"""Removal: all that belongs to a run goes with its root."""

from __future__ import annotations

import time
from collections.abc import Set

from launchpad.launch.backends.kubernetes.attempts import endings
from launchpad.launch.backends.kubernetes.cluster.cluster import Cluster, Refused, Unreachable
from launchpad.launch.backends.kubernetes.objects import labels

_GONE_S = 30.0
_SOON_S, _LATE_S = 0.1, 0.4
"""After how long it is looked again: at first, and in the end."""


def remove(cluster: Cluster, run: str, ended: Set[str] = frozenset()) -> None:
    """Deletes a run and waits until nothing of it is left.

    Args:
      ended: Pods whose workers have; a kubelet may take seconds to say so.

    Raises:
      Refused: the cluster will not.
      Unreachable: it does not answer, or something stays.
    """
    cluster.delete("Secret", run, policy="Foreground")
    deadline, pause_s = time.monotonic() + _GONE_S, _SOON_S
    while time.monotonic() < deadline:
        if is_gone(cluster, run, ended):
            return
        time.sleep(pause_s)
        pause_s = min(_LATE_S, 1.5 * pause_s)
    raise Unreachable(f"it is still there after {_GONE_S:g} s")


def is_gone(cluster: Cluster, run: str, ended: Set[str] = frozenset()) -> bool:
    """Whether nothing is left of a run that was deleted; takes off the list what runs no more."""
    pods, _ = cluster.list("Pod", f"{labels.RUN}={run}")
    for pod in pods:
        name = pod["metadata"]["name"]
        if name in ended or endings.is_idle(pod):  # a kubelet may take minutes to do it
            cluster.delete("Pod", name, grace_s=0)
    return not pods and not is_there(cluster, run)


def is_there(cluster: Cluster, run: str) -> bool:
    """Whether its root is."""
    try:
        cluster.read("Secret", run)
    except Refused as refused:
        if refused.status == 404:
            return False
        raise
    return True
