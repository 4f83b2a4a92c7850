"""Follower: one pod's log, from its first line to its last, over breaks of the connection.

lines of the user's ──▶ the attempt's log file here
letters             ──▶ reports
"""

from __future__ import annotations

import re
import threading
from collections.abc import Callable
from typing import Any

from launchpad.launch.backend import Ended
from launchpad.launch.backends.kubernetes.cluster.cluster import Cluster
from launchpad.launch.backends.kubernetes.post import letters
from launchpad.launch.backends.mirror import Mirror

_AGAIN_S = 0.5
_JOIN_S = 5.0
_STAMP = re.compile(rb"\d{4}-\d\d-\d\dT")


class Follower:
    """A thread that reads. It ends when the pod has said how its worker has ended: its last letter.

    Or, if it never does, when the log has ended and the pod, as `is_over` says, has, too.

    Args:
      on_report: Told what a letter says; in this thread.
      on_end: Called at the end; in this thread.
    """

    def __init__(
        self,
        cluster: Cluster,
        pod: str,
        mirror: Mirror,
        on_report: Callable[[Any], None],
        on_end: Callable[[], None],
    ) -> None:
        self._cluster, self._pod, self._mirror = cluster, pod, mirror
        self._on_report, self._on_end = on_report, on_end
        self._last = self._begun_at = ""
        self._n_last = self._n_known = 0
        self._has_said_all = False
        self.is_over = threading.Event()
        self._thread = threading.Thread(
            target=self._follow, name=f"launchpad-log-{pod}", daemon=True
        )
        self._thread.start()

    def join(self) -> None:
        """Waits until it has ended; not for a connection that nobody ends."""
        self._thread.join(_JOIN_S)

    def _follow(self) -> None:
        try:
            while self._read():
                self.is_over.wait(_AGAIN_S)
        finally:
            self._mirror.close()
            self._on_end()

    def _read(self) -> bool:
        """Reads what there is to the end of the connection; whether there may be more."""
        was_over = self.is_over.is_set()
        self._begun_at, self._n_known = self._last, self._n_last
        try:
            for line in self._cluster.log(self._pod, self._last):
                self._on_line(line)
                if self._has_said_all:
                    return False
        except Exception:  # out of reach, not found, nonsense
            return not was_over  # while there is a pod there is another try
        return not was_over

    def _is_known(self, time: str) -> bool:
        """Whether it came by an earlier connection: a log goes on from a second, and lines share times."""
        if time == self._begun_at and self._n_known:
            self._n_known -= 1
            return True
        return time < self._begun_at

    def _on_line(self, line: bytes) -> None:
        time, text = parted(line)
        if not time:
            return
        if self._is_known(time):
            return
        self._n_last = self._n_last + 1 if time == self._last else 1
        self._last = time
        report = letters.report_in(text)
        if report is None:
            self._mirror.write(letters.unescaped(text) + b"\n")
        else:
            self._has_said_all = isinstance(report, Ended)
            self._on_report(report)


def parted(line: bytes) -> tuple[str, bytes]:
    """When a line was written, and its text; the kubelet's own word, the container is gone, has no time."""
    stamp, _, text = line.partition(b" ")
    return (stamp.decode(), text) if _STAMP.match(stamp) else ("", line)
