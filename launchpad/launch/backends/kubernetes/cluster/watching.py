"""Watching: what becomes of a run's pods, from a list and then from a watch that goes on where it was.

list ──▶ version ──▶ watch ──ends──▶ watch from the last version ──410: too old──▶ list again
                      └── the cluster does not answer ──▶ again, later
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

from launchpad.launch.backends.kubernetes.cluster.cluster import Cluster, Refused

_LEAST_S = 0.01
_SOON_S, _LATE_S = 0.2, 10.0
_TOO_OLD = 410
_JOIN_S = 5.0


class Watching:
    """A thread that watches.

    Args:
      selector: The labels of the pods.
      on_event: Told (ADDED, MODIFIED or DELETED, pod), in this thread; also what a new list lacks.
      tell: Told in words when the cluster does not answer, and when it does again.
    """

    def __init__(
        self,
        cluster: Cluster,
        selector: str,
        on_event: Callable[[str, dict[str, Any]], None],
        tell: Callable[[str], None],
    ) -> None:
        self._cluster, self._selector = cluster, selector
        self._on_event, self._tell = on_event, tell
        self._known: dict[str, dict[str, Any]] = {}
        self._is_over = threading.Event()
        self._version = ""
        self._pause_s = 0.0
        self._thread = threading.Thread(target=self._watch, name="launchpad-pods", daemon=True)
        self._thread.start()

    def end(self) -> None:
        """Takes note of nothing more. The thread ends when its connection does."""
        self._is_over.set()

    def join(self) -> None:
        """Waits until the thread has ended; not for a connection that nobody ends."""
        self._thread.join(_JOIN_S)

    def _watch(self) -> None:
        while not self._is_over.wait(self._pause_s or _LEAST_S):
            try:
                self._look()
            except Refused as refused:
                self._version = ""
                if refused.status != _TOO_OLD:
                    self._slow_down(refused)
            except (
                Exception
            ) as error:  # out of reach, or nonsense; without a watch nothing would ever end
                self._slow_down(error)

    def _look(self) -> None:
        if not self._version:
            self._list()
            self._speed_up()
        for kind, pod in self._cluster.watch("Pod", self._selector, self._version):
            if self._is_over.is_set():
                return
            self._version = pod["metadata"]["resourceVersion"]
            self._speed_up()
            self._take(kind, pod)
        self._speed_up()

    def _list(self) -> None:
        pods, self._version = self._cluster.list("Pod", self._selector)
        there = {pod["metadata"]["uid"] for pod in pods}
        for uid in [uid for uid in self._known if uid not in there]:
            self._take("DELETED", self._known[uid])
        for pod in pods:
            self._take("MODIFIED", pod)

    def _take(self, kind: str, pod: dict[str, Any]) -> None:
        uid = pod["metadata"]["uid"]
        self._known[uid] = pod
        if kind == "DELETED":
            del self._known[uid]
        self._on_event(kind, pod)

    def _slow_down(self, error: Exception) -> None:
        if not self._pause_s and not self._is_over.is_set():
            self._tell(f"the cluster does not answer: {error}; trying again")
        self._pause_s = min(_LATE_S, max(_SOON_S, 2 * self._pause_s))

    def _speed_up(self) -> None:
        if self._pause_s:
            self._tell("the cluster answers again")
        self._pause_s = 0.0
