"""The list of all runs, and the page that shows it. Ended runs are listed while their logs are kept."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence

from nicegui import run as threads
from nicegui import ui

from launchpad.launch.rundir.record import RunRecord
from launchpad.view.pages import frame
from launchpad.view.pages.frame import Cell
from launchpad.view.watched_run import Connect, WatchedRun

_AGAIN_S = 5.0


class RunList:
    """A list of all runs. Some of them are watched. Methods may be called from any thread.

    Args:
        find_all: A function that returns the runs, the newest last.
        connect, may_control: The arguments for each `WatchedRun`.
    """

    def __init__(
        self,
        find_all: Callable[[], Sequence[RunRecord]],
        connect: Connect,
        *,
        may_control: bool = False,
    ) -> None:
        self._find_all = find_all
        self._connect = connect
        self._may_control = may_control
        self._watched: dict[str, WatchedRun] = {}
        # Two pages may ask for the same run at once. There must be only one WatchedRun, with its threads, for
        # this run.
        self._lock = threading.Lock()

    def records(self) -> list[RunRecord]:
        """Return all runs, the newest first."""
        return list(self._find_all())[::-1]

    def watched(self, run_id: str) -> WatchedRun | None:
        """Return the run with this id, and watch it from now on. Return None if no run has the id."""
        with self._lock:
            if run_id in self._watched:
                return self._watched[run_id]
            record = next((record for record in self._find_all() if record.run_id == run_id), None)
            return None if record is None else self._watch(record)

    def watch(self, record: RunRecord) -> None:
        """Start watching a run before a page asks for it."""
        with self._lock:
            self._watch(record)

    def _watch(self, record: RunRecord) -> WatchedRun:
        run = WatchedRun(record, self._connect, may_control=self._may_control)
        self._watched[record.run_id] = run
        run.start()
        return run


def show(run_list: RunList) -> None:
    """Build the page."""
    frame.head(None, "launchpad: runs")
    table = frame.markup("looking …").classes("scrolled")

    async def look() -> None:
        records = await threads.io_bound(run_list.records)
        rows = [
            [
                Cell(record.run_id, frame.path_of(record.run_id)),
                record.program,
                record.launch_type,
                "running" if record.is_running or record.host else "ended",
                time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(record.began)),
                f"{len(record.workers)}",
            ]
            for record in records or ()
        ]
        columns = ["RUN", "PROGRAM", "TYPE", "STATE", "BEGAN", "#WORKERS"]
        table.content = frame.table(columns, rows, "runs")

    ui.timer(_AGAIN_S, look)
