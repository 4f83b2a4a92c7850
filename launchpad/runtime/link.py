"""The link between a worker and the supervisor, for messages in both directions while the worker runs."""

from __future__ import annotations

import contextlib
import os
import sys
import time
import traceback
from collections.abc import Callable

from launchpad.courier import fork
from launchpad.courier.caller import Peer
from launchpad.errors import NotRunningError
from launchpad.restart_policy import NO_RESTARTS, RestartPolicy
from launchpad.runtime.events import EndsWatched, Event, Heartbeat, Waiting
from launchpad.runtime.watermarks import ENDED, Watermarks

_REPORT_AFTER_S = 1.0
_BEATS = 5
"""The number of heartbeats sent in the time in which one must arrive. Some heartbeats may be late."""


def _ignore(_: object) -> None:
    pass


class SupervisorLink:
    """One attempt of a worker, as the supervisor and other workers know it. Thread-safe.

    Several nodes in one worker share one link.

    Attributes:
        report: Reports an event of this worker to the supervisor.
        crash: Makes this attempt fail, from any other thread, if the worker is a thread.
        policy: The restart policy of its group.
        watermarks: The numbers that the supervisor sends to this worker.
        peer: The identity that servers see when this worker calls them; its incarnation is random.
        phase: The phase that the worker is in: import, init, run, stop.
        is_inherited: True in a forked child of the worker: the supervisor neither gets its reports nor sends
            it anything.
    """

    def __init__(
        self,
        worker: str,
        attempt: int,
        report: Callable[[Event], None] = _ignore,
        policy: RestartPolicy = NO_RESTARTS,
    ) -> None:
        self.report = report
        self.crash: Callable[[str], None] = _ignore
        self.policy = policy
        self.watermarks = Watermarks()
        self.peer = Peer(worker, attempt, os.urandom(16))
        self.phase = "import"
        self.is_inherited = False
        self._worker = worker
        self._attempt = attempt
        self._gone_reasons: dict[str, str] = {}
        self._waiting_since: dict[str, float] = {}
        self._last_beat = 0.0
        self._watches_ends = False
        fork.call_in_child(self, type(self)._drop_inherited)

    def _drop_inherited(self) -> None:
        self.is_inherited = True

    def refuse_in_child(self, feature: str, hint: str) -> None:
        """Refuse what can't work in a forked child of the worker.

        Raises:
            NotRunningError: this process is a forked child.
        """
        if self.is_inherited:
            raise NotRunningError(
                f"{feature} works in the worker itself, and {fork.describe_child()}, {self._worker}. {hint}"
            )

    def end_if_child(self, error: BaseException | None) -> None:
        """End this process if it is a forked child of the worker that has returned from the worker's code.

        Only the parent goes on from here: it reports how the worker ended, and closes the worker's servers.
        """
        if not self.is_inherited:
            return
        code: object = None
        if isinstance(error, SystemExit):
            code = error.code
        elif error is not None:
            code = 1
            with contextlib.suppress(Exception):
                traceback.print_exception(error)
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(Exception):
                stream.flush()
        os._exit(code & 0xFF if isinstance(code, int) else int(code is not None))

    def mark_gone(self, worker: str, why: str) -> None:
        """Record that another worker failed or ended for good; with an empty `why`, that it is back."""
        self._gone_reasons[worker] = why

    def gone_reason(self, worker: str) -> str:
        """Return why that worker failed or ended for good; empty if it is not known to have ended."""
        return self._gone_reasons.get(worker, "")

    def has_ended(self, worker: str, attempt: int) -> bool:
        """Return True if the supervisor has announced that this attempt of another worker has ended.

        The first call asks the supervisor for these announcements, which then come soon after each end.
        """
        if not self._watches_ends:
            self._watches_ends = True
            self.report(EndsWatched(self._worker, self._attempt))
        return 0 < attempt <= self.watermarks.get(f"{ENDED}{worker}")

    def watch_ends(self, callback: Callable[[str, int], None]) -> None:
        """Call `callback` with each worker and attempt that ends, in one of launchpad's threads."""
        self.watermarks.on_growth(ENDED, callback)
        # Ask the supervisor to announce ends from now on.
        self.has_ended("", 0)

    def heartbeat(self) -> None:
        """Report that this worker makes progress, if its policy has `heartbeat_s`: `lp.heartbeat()`."""
        within_s = self.policy.heartbeat_s
        if within_s is None:
            return
        now = time.monotonic()
        if now - self._last_beat >= within_s / _BEATS:
            self._last_beat = now
            self.report(Heartbeat(self._worker, self._attempt))

    def note_waiting(self, worker: str) -> None:
        """Report, once a second, that a constructor waits for `worker`: two may wait for each other."""
        if self.phase != "init":
            return
        now = time.monotonic()
        if now - self._waiting_since.setdefault(worker, now) > _REPORT_AFTER_S:
            self._waiting_since[worker] = now
            self.report(Waiting(self._worker, worker))
