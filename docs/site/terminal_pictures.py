"""The pictures of `launchpad top` and of `--lp_view=terminal`, both for examples/ps.

python -m docs.site.terminal_pictures        writes docs/images/top.svg and docs/images/status_lines.svg
"""

from __future__ import annotations

import asyncio
import io
import time
from dataclasses import asdict
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from rich.console import Console
from rich.text import Text
from textual.widgets import DataTable

import launchpad as lp
from examples._shared.problem import Problem
from examples.ps.program import make_program
from launchpad.view.looks import Observer
from launchpad.view.status_lines import lines_of
from launchpad.view.terminal import Top

IMAGES = Path(__file__).parents[1] / "images"
COLUMNS = 104
ROWS = 30
WATCHED_S = 4.0


def main() -> None:
    """Launch the program, and draw both pictures when the killed shard runs again."""
    problem = Problem(workers=10, steps=1_000_000)
    with lp.launch(make_program(problem, "ssp", kill_at=500), "test_mp") as running:
        client = SimpleNamespace(
            status=lambda: [asdict(row) for row in running.status()],
            metrics=running.metrics,
        )
        while True:
            shard = running.status()[0]
            if shard.attempt >= 2 and shard.state == "running":
                break
            time.sleep(0.1)
        asyncio.run(draw_top(client, f"ps · {running.run_id} · local_mp"))
        draw_status_lines(client, running)


async def draw_top(client: Any, title: str) -> None:
    """Draw `launchpad top`, with the group of workers unfolded and the log of the first worker."""
    top = Top(client, title, 1.0, 2.0)
    top.title = "launchpad top"
    async with top.run_test(size=(COLUMNS, ROWS)) as pilot:
        await pilot.pause(WATCHED_S)
        workers = top.query_one("#workers", DataTable)
        workers.move_cursor(row=workers.row_count - 1)
        await pilot.press("enter")
        await pilot.press("down")
        await pilot.pause(2.0)
        top.save_screenshot(str(IMAGES / "top.svg"))


def draw_status_lines(client: Any, running: lp.Running) -> None:
    """Draw the status lines, below some lines that the workers have printed."""
    observer = Observer(client, 2.0)
    observer.look()
    time.sleep(WATCHED_S)
    look = observer.look()
    console = Console(record=True, width=COLUMNS, file=io.StringIO(), force_terminal=True)
    names = [row.worker for row in running.status()]
    colors = dict(zip(names, "cyan green yellow magenta blue bright_red".split() * 9, strict=False))
    printed = [(line, name) for name in names for line in running.logs(name).splitlines()[-6:]]
    for line, name in printed[-8:]:
        console.print(Text(f"{name:9} | ", colors[name]), Text(line), sep="")
    console.print(Text("─" * COLUMNS, "dim"))
    for status in lines_of(look, "ps · local_mp"):
        console.print(status, no_wrap=True)
    console.save_svg(
        str(IMAGES / "status_lines.svg"), title="python -m examples.ps --lp_view=terminal"
    )


if __name__ == "__main__":
    main()
