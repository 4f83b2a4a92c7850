"""Away: runs on a cluster whose launcher is elsewhere, or was killed: found by their label, and ended.

Nobody decides for such a run any more, whether a worker is started again, say; its pods go on meanwhile.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Mapping
from functools import partial
from typing import Any

from launchpad import outcome
from launchpad.errors import LaunchError
from launchpad.launch.backends.kubernetes import endings, letters, manifest, names, removal
from launchpad.launch.backends.kubernetes.api import Api, Cluster, Refused, Unreachable
from launchpad.launch.backends.kubernetes.settings import FILE, Settings
from launchpad.launch.detached import Detached
from launchpad.launch.record import RunRecord
from launchpad.launch.status import WorkerStatus

_LOOK_S = 0.2
_ROOTS = f"app.kubernetes.io/managed-by=launchpad,{manifest.ROLE}=root"


def detached() -> list[Detached]:
    """Those on the cluster of $KUBECONFIG; none if neither that is set nor $LAUNCHPAD_KUBERNETES.

    Raises:
      LaunchError: the cluster does not answer, or does not let this user look.
    """
    if not os.environ.get("KUBECONFIG") and not os.environ.get(FILE):
        return []
    return runs_on(Api(Settings.of({}).namespace))


def runs_on(cluster: Cluster) -> list[Detached]:
    """The runs on a cluster."""
    try:
        roots, _ = cluster.list("Secret", _ROOTS)
    except (Refused, Unreachable) as error:
        raise LaunchError(f"runs on the cluster cannot be listed: {error}") from error
    found = (_detached(cluster, root["metadata"]) for root in roots)
    return [each for each in found if each is not None]


def _detached(cluster: Cluster, root: Mapping[str, Any]) -> Detached | None:
    try:
        record = RunRecord(**json.loads(root["annotations"][manifest.RECORD]))
    except (KeyError, TypeError, ValueError):  # of another version, or no run of ours
        return None
    return Detached(record, partial(_asked, _Run(cluster, root["name"], record)))


class _Run:
    """What `Detached` asks of a run, by the names of its methods."""

    def __init__(self, cluster: Cluster, name: str, record: RunRecord) -> None:
        self._cluster, self._name, self._record = cluster, name, record

    def status(self) -> list[WorkerStatus]:
        """A row for each worker, from what the cluster says of its newest pod."""
        pods = self._pods()
        return [
            _status(worker, group, pods.get(names.label(worker)))
            for worker, group in self._record.workers.items()
        ]

    def stop(self, at_once: bool = False) -> None:
        """Deletes the root, and so all that belongs to it."""
        self._cluster.delete("Secret", self._name, policy="Foreground")
        if at_once:
            for pod in self._pods().values():
                self._cluster.delete("Pod", pod["metadata"]["name"], grace_s=1)

    def wait(self, timeout_s: float) -> bool:
        """Whether nothing of it is left, at the latest after so long."""
        deadline = time.monotonic() + timeout_s
        while removal.is_there(self._cluster, self._name):
            if time.monotonic() >= deadline:
                return False
            time.sleep(_LOOK_S)
        return True

    def failure(self) -> None:
        """Nobody knows."""
        return

    def logs(self, worker: str, offset: int = 0) -> str:
        """What its newest attempt has printed."""
        pod = self._pods().get(names.label(worker))
        if pod is None or not endings.has_started(pod):
            return ""
        lines = (line.partition(b" ")[2] for line in self._cluster.printed(pod["metadata"]["name"]))
        users = (letters.unescaped(line) for line in lines if letters.report_in(line) is None)
        return b"".join(line + b"\n" for line in users).decode(errors="replace")[offset:]

    def stacks(self, workers: list[str]) -> dict[str, str]:
        """Only its launcher gets them."""
        return dict.fromkeys(workers, "(only its launcher can ask for stacks)\n")

    def _pods(self) -> dict[str, dict[str, Any]]:
        """Label of a worker → its newest pod."""
        pods, _ = self._cluster.list("Pod", f"{manifest.RUN}={self._name}")
        pods.sort(key=lambda pod: int(pod["metadata"]["labels"][manifest.ATTEMPT]))
        return {pod["metadata"]["labels"][manifest.WORKER]: pod for pod in pods}


def _asked(run: _Run, method: str, *arguments: Any) -> Any:
    try:
        return getattr(run, method)(*arguments)
    except (Refused, Unreachable) as error:
        raise LaunchError(f"the cluster does not tell of this run: {error}") from error


def _status(worker: str, group: str, pod: Mapping[str, Any] | None) -> WorkerStatus:
    if pod is None:
        return WorkerStatus(worker, group, "pending", 0, "", "")
    attempt = int(pod["metadata"]["labels"][manifest.ATTEMPT])
    if not endings.is_over(pod):
        state = "running" if endings.has_started(pod) else "starting"
        return WorkerStatus(worker, group, state, attempt, endings.why_pending(pod), "")
    ended = endings.ending(endings.Told(worker, attempt), pod, was_deleted=False)
    kind = outcome.SUCCEEDED if pod["status"].get("phase") == "Succeeded" else ended.kind
    return WorkerStatus(worker, group, kind, attempt, ended.cause, "")
