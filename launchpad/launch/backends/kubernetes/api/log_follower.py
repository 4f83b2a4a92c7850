"""Follows one pod's log from its first line to its last, across broken connections.

lines of the user's code ──▶ the attempt's log file here
messages of the pod      ──▶ reports
"""

from __future__ import annotations

import contextlib
import re
import threading
from collections.abc import Callable
from typing import Any

from launchpad.courier.own_threads import OwnThread
from launchpad.launch.backends.kubernetes import pod_messages
from launchpad.launch.backends.kubernetes.api.client import Cluster
from launchpad.launch.logs.log_writer import LogWriter
from launchpad.runtime.events import Ended

_AGAIN_S = 0.5
_STAMP = re.compile(rb"\d{4}-\d\d-\d\dT")


class LogFollower:
    """A thread that reads until the pod has reported how its worker has ended: its last message.

    Without such a message, until the log has ended and the pod, as `is_over` says, has, too. `on_report` and
    `on_end` are called in this thread.

    Attributes:
        thread: May be blocked by an open connection for a while after the end.
    """

    def __init__(
        self,
        cluster: Cluster,
        pod: str,
        log: LogWriter,
        on_report: Callable[[Any], None],
        on_end: Callable[[], None],
    ) -> None:
        self._cluster, self._pod, self._log = cluster, pod, log
        self._on_report, self._on_end = on_report, on_end
        self.is_over = threading.Event()
        self.thread = OwnThread(target=self._follow, name=f"launchpad-log-{pod}")
        self.thread.start()

    def _follow(self) -> None:
        last, n_last = "", 0
        is_last_try = False
        try:
            while not is_last_try:
                is_last_try = self.is_over.is_set()
                # a log continues from a full second, and lines share timestamps: some are known
                begun_at, n_known = last, n_last
                # out of reach, not found, nonsense: while there is a pod there is another try
                with contextlib.suppress(Exception):
                    for line in self._cluster.log(self._pod, last):
                        time, text = split_timestamp(line)
                        if not time or time < begun_at:
                            continue
                        if time == begun_at and n_known:
                            n_known -= 1
                            continue
                        n_last = n_last + 1 if time == last else 1
                        last = time
                        report = pod_messages.report_in(text)
                        if report is None:
                            self._log.write_bytes(pod_messages.unescaped(text) + b"\n")
                            continue
                        self._on_report(report)
                        if isinstance(report, Ended):
                            return
                if not is_last_try:
                    self.is_over.wait(_AGAIN_S)
        finally:
            self._log.close()
            self._on_end()


def split_timestamp(line: bytes) -> tuple[str, bytes]:
    """Split a line into its timestamp and its text. A line of the kubelet itself has no timestamp."""
    stamp, _, text = line.partition(b" ")
    return (stamp.decode(), text) if _STAMP.match(stamp) else ("", line)
