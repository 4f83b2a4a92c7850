"""The page of all runs: those that run, and those that have ended and left their logs."""

from __future__ import annotations

import time

from nicegui import run as threads
from nicegui import ui

from launchpad.view.pages import frame
from launchpad.view.pages.frame import Cell
from launchpad.view.run_list import RunList

_AGAIN_S = 5.0


def show(run_list: RunList) -> None:
    """Builds the page."""
    frame.head(None, "launchpad: runs")
    listed = frame.markup("looking …").classes("scrolled")

    async def look() -> None:
        records = await threads.io_bound(run_list.records)
        rows = [
            [
                Cell(each.run_id, frame.path_of(each.run_id)),
                each.program,
                each.launch_type,
                "running" if each.is_running or each.host else "ended",
                time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(each.began)),
                f"{len(each.workers)}",
            ]
            for each in records or ()
        ]
        listed.content = frame.table(
            ["RUN", "PROGRAM", "TYPE", "STATE", "BEGAN", "#WORKERS"], rows, "runs"
        )

    ui.timer(_AGAIN_S, look)
