"""A reader of one pod's log from its first line to its last, across broken connections.

lines of the user's code ──▶ the attempt's log file here
messages of the pod      ──▶ reports
"""

from __future__ import annotations

import logging
import re
import threading
import time
from collections.abc import Callable
from typing import Any

from launchpad.courier.own_threads import OwnThread
from launchpad.launch.backends.kubernetes import pod_messages
from launchpad.launch.backends.kubernetes.api.client import Cluster
from launchpad.launch.logs.log_writer import LogWriter
from launchpad.runtime.events import Ended

_log = logging.getLogger("launchpad.kubernetes")

_SOON_S = 0.5
_LATE_S = 5.0
"""Seconds until a log is read again: at first, and after many failures. There may be 1,000 followers."""

_STAMP = re.compile(rb"\d{4}-\d\d-\d\dT")


class LogFollower:
    """A thread that reads a log until the pod's last message, which reports how its worker ended.

    Without that message, it reads until the log has ended and `is_over` is set, because the pod has ended.
    `on_report` and `on_end` are called in this thread.

    Attributes:
        is_over: An event. Set it when the pod has ended.
        thread: The thread. An open connection may block it for a while after the end.
    """

    def __init__(
        self,
        cluster: Cluster,
        pod: str,
        log: LogWriter,
        on_report: Callable[[Any], None],
        on_end: Callable[[], None],
    ) -> None:
        self._cluster = cluster
        self._pod = pod
        self._log = log
        self._on_report = on_report
        self._on_end = on_end
        self.is_over = threading.Event()
        self.thread = OwnThread(target=self._follow, name=f"launchpad-log-{pod}")
        self.thread.start()

    def _follow(self) -> None:
        last = ""
        n_last = 0
        is_last_try = False
        pause_s = _SOON_S
        try:
            while not is_last_try:
                # Check this before the log is read. Then this read includes everything that the pod printed
                # before its end.
                is_last_try = self.is_over.is_set()
                # A log continues from a full second, and lines may share a timestamp. Skip the known ones.
                begun_at = last
                n_known = n_last
                began = time.monotonic()
                # The cluster may be out of reach, not find the log, or send nonsense. While there is a pod,
                # try again.
                try:
                    for line in self._cluster.log(self._pod, last):
                        stamp, text = split_timestamp(line)
                        if not stamp or stamp < begun_at:
                            continue
                        if stamp == begun_at and n_known:
                            n_known -= 1
                            continue
                        n_last = n_last + 1 if stamp == last else 1
                        last = stamp
                        report = pod_messages.report_in(text)
                        if report is None:
                            self._log.write_bytes(pod_messages.unescaped(text) + b"\n")
                            continue
                        self._on_report(report)
                        if isinstance(report, Ended):
                            return
                except Exception as error:
                    _log.debug("the log of %s: %s; again in %.2f s", self._pod, error, pause_s)
                # A log that could be read for a while has not failed again.
                if time.monotonic() - began > _LATE_S:
                    pause_s = _SOON_S
                if not is_last_try:
                    self.is_over.wait(pause_s)
                    pause_s = min(_LATE_S, 2 * pause_s)
        finally:
            self._log.close()
            self._on_end()


def split_timestamp(line: bytes) -> tuple[str, bytes]:
    """Split a line into its timestamp and its text. A line of the kubelet itself has no timestamp."""
    stamp, _, text = line.partition(b" ")
    return (stamp.decode(), text) if _STAMP.match(stamp) else ("", line)
