"""Left: a run as the cluster has it, without a word of its launcher's, which is elsewhere, or was killed."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Set
from typing import Any

from launchpad import outcome
from launchpad.errors import LaunchError, ProgramFailed
from launchpad.launch.backends.kubernetes.attempts import endings, removal
from launchpad.launch.backends.kubernetes.cluster.cluster import Cluster, Manifest, Refused
from launchpad.launch.backends.kubernetes.cluster.follower import parted
from launchpad.launch.backends.kubernetes.objects import labels, names
from launchpad.launch.backends.kubernetes.post import letters
from launchpad.launch.status import WorkerStatus

_LOOK_S = 0.2
_SHORT_S = 1.0
"""How long a worker may take to stop that is ended by force."""

_INSIST_S = 15.0
"""How much longer than it may a pod can take, before it is taken off the list whatever its node does."""

_NO_LOG = (400, 404)
"""What a cluster answers who wants the log of a container that is not there yet, or not any more."""


class Left:
    """What `Detached` asks of a run, by the names of its methods.

    Args:
      name: Of the run.
      workers: Name → group.
    """

    def __init__(self, cluster: Cluster, name: str, workers: Mapping[str, str]) -> None:
        self._cluster, self._name, self._workers = cluster, name, workers
        self._is_deleted = False
        self._insists_at = float("inf")

    def status(self) -> list[WorkerStatus]:
        """A row for each worker, from what the cluster says of its newest pod."""
        pods = self._newest()
        return [
            _status(worker, group, pods.get(names.label(worker)))
            for worker, group in self._workers.items()
        ]

    def stop(self, at_once: bool = False) -> None:
        """Deletes the root, and so all that belongs to it. What fails half-way can be done again."""
        grace_s = 0.0 if at_once else longest_grace_s(self._pods())
        self._insists_at = time.monotonic() + grace_s + _INSIST_S
        self._cluster.delete("Secret", self._name, policy="Foreground")
        if at_once:
            self._hurry()
        self._is_deleted = True

    def wait(self, timeout_s: float) -> bool:
        """Whether nothing of it is left, at the latest after so long."""
        deadline = time.monotonic() + timeout_s
        while not self._is_gone():
            if time.monotonic() >= deadline:
                return False
            time.sleep(_LOOK_S)
        return True

    def failure(self) -> ProgramFailed | LaunchError | None:
        """Nobody knows."""
        return None

    def logs(self, worker: str, offset: int = 0) -> str:
        """What its newest attempt has printed."""
        lines = printed(self._cluster, self._newest().get(names.label(worker), {}))
        users = [letters.unescaped(line) for line in lines if letters.report_in(line) is None]
        return b"".join(line + b"\n" for line in users).decode(errors="replace")[offset:]

    def stacks(self, workers: list[str]) -> dict[str, str]:
        """Only its launcher gets them."""
        return dict.fromkeys(workers, "(only its launcher can ask for stacks)\n")

    def _hurry(self) -> None:
        """Ends its pods by force; their Jobs first, which would replace them."""
        pods = self._pods()
        owners = [owner for pod in pods for owner in pod["metadata"].get("ownerReferences", ())]
        for owner in (owner for owner in owners if owner["kind"] == "Job"):
            self._cluster.delete("Job", owner["name"])
        for pod in pods:
            self._cluster.delete("Pod", pod["metadata"]["name"], grace_s=_SHORT_S)

    def _is_gone(self) -> bool:
        """Whether nothing is left of it; while nobody has ended it one who looks changes nothing."""
        if not self._is_deleted:
            return not removal.is_there(self._cluster, self._name)
        return removal.is_gone(self._cluster, self._name, self._late(self._name))

    def _late(self, run: str) -> Set[str]:
        """Pods that have had time enough to end."""
        if time.monotonic() < self._insists_at:
            return frozenset()
        return {pod["metadata"]["name"] for pod in self._those_of(run)}

    def _newest(self) -> dict[str, Manifest]:
        """Label of a worker → its newest pod."""
        return {pod["metadata"]["labels"][labels.WORKER]: pod for pod in self._pods()}

    def _pods(self) -> list[Manifest]:
        """All that belong to it, the oldest first."""
        return self._those_of(self._name)

    def _those_of(self, run: str) -> list[Manifest]:
        pods, _ = self._cluster.list("Pod", f"{labels.RUN}={run}")
        return sorted(pods, key=_age)


def longest_grace_s(pods: Iterable[Mapping[str, Any]]) -> float:
    """How long they may take to end."""
    return max((pod["spec"].get("terminationGracePeriodSeconds", 0) for pod in pods), default=0)


def printed(cluster: Cluster, pod: Mapping[str, Any]) -> list[bytes]:
    """The lines that a pod has printed so far; none if there is no pod, or no log of it any more."""
    if not endings.has_started(pod):
        return []
    try:
        lines = [parted(line) for line in cluster.printed(pod["metadata"]["name"])]
    except Refused as refused:
        if refused.status in _NO_LOG:
            return []
        raise
    return [text for time, text in lines if time]


def _age(pod: Manifest) -> tuple[int, str]:
    """Which attempt it is; and when it was made, as a Job replaces a pod that somebody has deleted."""
    metadata = pod["metadata"]
    return int(metadata["labels"][labels.ATTEMPT]), metadata.get("creationTimestamp", "")


def _status(worker: str, group: str, pod: Mapping[str, Any] | None) -> WorkerStatus:
    if pod is None:
        return WorkerStatus(worker, group, "pending", 0, "", "")
    attempt = int(pod["metadata"]["labels"][labels.ATTEMPT])
    if not endings.is_over(pod):
        return WorkerStatus(worker, group, _state(pod), attempt, endings.why_pending(pod), "")
    ended = endings.ending(endings.Told(worker, attempt), pod, was_deleted=False)
    if ended.is_failure and pod["status"].get("phase") == "Succeeded":  # its last word was lost
        return WorkerStatus(worker, group, outcome.SUCCEEDED, attempt, "", "")
    return WorkerStatus(worker, group, ended.kind, attempt, ended.cause, "")


def _state(pod: Mapping[str, Any]) -> str:
    if "deletionTimestamp" in pod["metadata"]:
        return "stopping"
    return "running" if endings.has_started(pod) else "starting"
