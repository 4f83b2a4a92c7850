"""An informer, which reports changes of a run's pods: from a list, then from a watch that continues there.

list ──▶ version ──▶ watch ──ends──▶ watch from the last version ──410: too old──▶ list again
                      └── the cluster does not answer ──▶ again, later
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

from launchpad.courier.own_threads import OwnThread
from launchpad.launch.backends.kubernetes.api.client import ApiError, Cluster

_LEAST_S = 0.01
_SOON_S = 0.2
_LATE_S = 10.0
_TOO_OLD = 410


class PodInformer:
    """A thread that watches pods.

    Args:
        on_event: Called in this thread with (ADDED, MODIFIED or DELETED, pod), even for pods that were
            deleted while there was no watch.
        note: Called with a text when the cluster doesn't answer, and when it answers again.

    Attributes:
        is_over: Set it to stop all calls of `on_event`.
        thread: The thread, which ends when its connection does.
    """

    def __init__(
        self,
        cluster: Cluster,
        selector: str,
        on_event: Callable[[str, dict[str, Any]], None],
        note: Callable[[str], None],
    ) -> None:
        self._cluster = cluster
        self._selector = selector
        self._on_event = on_event
        self._note = note
        self._known: dict[str, dict[str, Any]] = {}
        self.is_over = threading.Event()
        self._version = ""
        self._pause_s = 0.0
        self.thread = OwnThread(target=self._watch, name="launchpad-pods")
        self.thread.start()

    def _watch(self) -> None:
        while not self.is_over.wait(self._pause_s or _LEAST_S):
            try:
                if not self._version:
                    pods, self._version = self._cluster.list("Pod", self._selector)
                    uids = {pod["metadata"]["uid"] for pod in pods}
                    for uid in [uid for uid in self._known if uid not in uids]:
                        self._handle("DELETED", self._known[uid])
                    for pod in pods:
                        self._handle("MODIFIED", pod)
                    self._speed_up()
                for kind, pod in self._cluster.watch("Pod", self._selector, self._version):
                    if self.is_over.is_set():
                        return
                    self._version = pod["metadata"]["resourceVersion"]
                    self._speed_up()
                    self._handle(kind, pod)
                self._speed_up()
            # The cluster may be out of reach, or send nonsense. Go on, because without a watch nothing ever
            # ends.
            except Exception as error:
                if isinstance(error, ApiError):
                    self._version = ""
                    if error.status == _TOO_OLD:
                        continue
                if not self._pause_s and not self.is_over.is_set():
                    self._note(f"the cluster does not answer: {error}; trying again")
                self._pause_s = min(_LATE_S, max(_SOON_S, 2 * self._pause_s))

    def _handle(self, kind: str, whole_pod: dict[str, Any]) -> None:
        pod = essentials(whole_pod)
        uid = pod["metadata"]["uid"]
        self._known[uid] = pod
        if kind == "DELETED":
            del self._known[uid]
        self._on_event(kind, pod)

    def _speed_up(self) -> None:
        if self._pause_s:
            self._note("the cluster answers again")
        self._pause_s = 0.0


def essentials(pod: dict[str, Any]) -> dict[str, Any]:
    """Return a pod without what the launcher never reads: most of its spec, and the cluster's own notes.

    As dicts, a whole pod takes 100 kB, and there may be thousands.
    """
    spec = pod.get("spec", {})
    containers = [
        {key: container[key] for key in ("name", "resources") if key in container}
        for container in spec.get("containers", ())
    ]
    metadata = {key: value for key, value in pod["metadata"].items() if key != "managedFields"}
    short_spec = {
        "containers": containers,
        "nodeName": spec.get("nodeName", ""),
        "tolerations": spec.get("tolerations") or [],
    }
    return {"metadata": metadata, "spec": short_spec, "status": pod.get("status", {})}
