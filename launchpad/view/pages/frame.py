"""Parts of all pages: a head with links, a style, tables, buttons, and a timer that draws changes."""

from __future__ import annotations

import html
import time
import urllib.parse
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from nicegui import run as threads
from nicegui import ui

from launchpad.courier import CourierError
from launchpad.errors import LaunchpadError
from launchpad.view.watched_run import WatchedRun

LOOK_S = 0.25
"""How often, in seconds, a page is checked for changes."""

_SHARE = 0.05
"""The share of a core that drawing a page may take."""

_CSS = Path(__file__).with_name("style.css").read_text()


@dataclass(frozen=True)
class Cell:
    """A cell of a table.

    Attributes:
        href: The address of the page that the text links to. Empty for text without a link.
        css: The CSS classes of the cell.
        key: The cell's `data-key`, by which the page recognizes a click on it.
        folded: More text, which is shown after a click on `text`.
    """

    text: str
    href: str = ""
    css: str = ""
    key: str = ""
    folded: str = ""

    def __str__(self) -> str:
        text = html.escape(self.text)
        inside = f'<a href="{html.escape(self.href)}">{text}</a>' if self.href else text
        if self.folded:
            folded = html.escape(self.folded)
            inside = f'<details><summary>{text}</summary><div class="mono">{folded}</div></details>'
        key = f' data-key="{html.escape(self.key)}"' if self.key else ""
        return f'<td class="{self.css}"{key}>{inside}</td>'


def number(text: str, css: str = "") -> Cell:
    """Return a cell with a number."""
    return Cell(text, css=f"n {css}".strip())


def table(head: Sequence[str], rows: Iterable[Sequence[str | Cell]], name: str = "") -> str:
    """Return a table as HTML. A column whose head begins with `#` contains numbers."""
    heads = ""
    for name_of_column in head:
        css = ' class="n"' if name_of_column.startswith("#") else ""
        heads += f"<th{css}>{html.escape(name_of_column.removeprefix('#'))}</th>"
    body = ""
    for row in rows:
        cells = [cell if isinstance(cell, Cell) else Cell(cell) for cell in row]
        body += f"<tr>{''.join(map(str, cells))}</tr>"
    return f'<table class="rows" id="{name}"><thead><tr>{heads}</tr></thead><tbody>{body}</tbody></table>'


def path_of(run_id: str, *parts: str) -> str:
    """Return the address of a page of a run."""
    names = (urllib.parse.quote(name, safe="") for name in (run_id, *parts))
    return "/".join(["", "run", *names])


def path_of_worker(run: WatchedRun, worker: str) -> str:
    """Return the address of the page of a worker."""
    return path_of(run.record.run_id, "worker", worker)


def head(run: WatchedRun | None, title: str) -> ui.element:
    """Add the head of a page. Pass None as `run` for a page that is not about a single run."""
    ui.page_title(title)
    ui.add_css(_CSS)
    links = [("all runs", "/")]
    with ui.element("div").classes("bar head") as bar:
        if run is not None:
            record = run.record
            ui.label(record.program).classes("program")
            ui.label(f"{record.run_id} · {record.launch_type}").classes("quiet")
            pages = [("graph", ()), ("time lines", ("time-lines",)), ("failure", ("failure",))]
            links = [(name, path_of(record.run_id, *parts)) for name, parts in pages] + links
        else:
            ui.label("launchpad").classes("program")
        for text, target in links:
            ui.link(text, target)
    return bar


def section(title: str) -> ui.label:
    """Add the heading of a part of a page."""
    return ui.label(title).classes("section")


def shown_text(content: str = "") -> ui.label:
    """Add a text of several lines, and keep its line breaks and spaces."""
    return ui.label(content).classes("mono")


def markup(content: str = "") -> ui.html:
    """Add HTML that our own code made. All text in it that comes from a program must be escaped."""
    return ui.html(content, sanitize=False)


def button(text: str, name: str, on_click: Callable[[], object] | None = None) -> ui.button:
    """Add a small button. `name` is the id of its HTML element."""
    small_button = ui.button(text, on_click=on_click)
    small_button.props(f"outline dense no-caps id={name}").classes("small")
    return small_button


def add_stop(run: WatchedRun) -> None:
    """Add a button that stops the program after the user confirms. Do nothing on a read-only page."""
    if not run.may_control:
        return
    record = run.record
    with ui.dialog() as question, ui.card():
        ui.label(f"Stop {record.program}?").classes("section")
        ui.label(f"{record.run_id} is asked to end, as one Ctrl-C does.")
        with ui.row():
            yes = ui.button("stop", color="negative", on_click=lambda: question.submit(True))
            yes.props("dense no-caps unelevated id=stop-now").classes("small")
            no = ui.button("leave it running", on_click=lambda: question.submit(False))
            no.props("dense no-caps flat")

    async def ask() -> None:
        if await question:
            await _send(run.stop, f"stopping {record.program} …")

    stop = button("stop the program", "stop", ask)
    stop.props("color=negative").classes("push")
    show_while_it_runs(run, stop)


def add_restart(run: WatchedRun, worker: str) -> None:
    """Add a button that restarts a worker, unless the page is read-only or cannot restart this worker."""
    if not run.may_control or run.is_remote or worker not in run.record.workers:
        return

    async def ask() -> None:
        await _send(lambda: run.restart(worker), f"restarting {worker} …")

    restart = button("restart", "restart", ask)
    restart.props("color=negative")
    show_while_it_runs(run, restart)


async def _send(request: Callable[[], None], notice: str) -> None:
    try:
        await threads.io_bound(request)
        ui.notify(notice)
    except (CourierError, LaunchpadError, OSError) as error:
        ui.notify(f"{error}", type="negative", multi_line=True)


def show_while_it_runs(run: WatchedRun, element: ui.element) -> None:
    """Hide an element as soon as the program has ended."""

    async def hide() -> None:
        element.set_visibility(not run.has_ended)

    on_change(lambda: run.has_ended, hide)


def on_change(version: Callable[[], object], show: Callable[[], Awaitable[None]]) -> None:
    """Call `show` within a moment, and again whenever `version` returns another value.

    If `show` takes long, for example to draw thousands of edges, it is called less often.
    """
    shown_version: object = None
    not_before = 0.0

    async def look() -> None:
        nonlocal shown_version, not_before
        if time.monotonic() < not_before:
            return
        new_version = version()
        if new_version != shown_version:
            shown_version = new_version
            began_s = time.thread_time()
            await show()
            not_before = time.monotonic() + (time.thread_time() - began_s) / _SHARE

    ui.timer(LOOK_S, look)
