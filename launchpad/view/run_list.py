"""The runs that the browser's pages show: those of this user that run, and those whose logs are there."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence

from launchpad.launch.rundir.record import RunRecord
from launchpad.view.watched_run import Connect, WatchedRun


class RunList:
    """All runs, and those among them that are watched. From any thread.

    Args:
        find_all: The runs, the newest last.
        connect, may_control: As for `WatchedRun`.
    """

    def __init__(
        self,
        find_all: Callable[[], Sequence[RunRecord]],
        connect: Connect,
        *,
        may_control: bool = False,
    ) -> None:
        self._find_all, self._connect, self._may_control = find_all, connect, may_control
        self._watched: dict[str, WatchedRun] = {}
        self._lock = threading.Lock()

    def records(self) -> list[RunRecord]:
        """All runs, the newest first."""
        return list(self._find_all())[::-1]

    def watched(self, run_id: str) -> WatchedRun | None:
        """The run, which is watched from now on; None: there is none of this name."""
        with self._lock:
            if (known := self._watched.get(run_id)) is not None:
                return known
            record = next((each for each in self._find_all() if each.run_id == run_id), None)
            return None if record is None else self._watch(record)

    def watch(self, record: RunRecord) -> None:
        """Begins to watch a run before a page asks for it."""
        with self._lock:
            self._watch(record)

    def _watch(self, record: RunRecord) -> WatchedRun:
        run = WatchedRun(record, self._connect, may_control=self._may_control)
        self._watched[record.run_id] = run
        run.start()
        return run
