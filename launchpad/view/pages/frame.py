"""What all pages have: a head with links, a style, tables, and a clock that shows what is new."""

from __future__ import annotations

import html
import time
import urllib.parse
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from nicegui import ui

from launchpad.view.watched_run import WatchedRun

LOOK_S = 0.25
"""So often a page looks for what is new."""

_SHARE = 0.05
"""The share of a core that drawing a page may take."""

_CSS = Path(__file__).with_name("style.css").read_text()


@dataclass(frozen=True)
class Cell:
    """A cell of a table: its text, and where it leads.

    Attributes:
        css: Classes of its style.
        key: Its `data-key`, for what reacts to a click.
        folded: Is shown after a click on the text.
    """

    text: str
    href: str = ""
    css: str = ""
    key: str = ""
    folded: str = ""

    def __str__(self) -> str:
        shown = html.escape(self.text)
        inside = f'<a href="{html.escape(self.href)}">{shown}</a>' if self.href else shown
        if self.folded:
            whole = html.escape(self.folded)
            inside = f'<details><summary>{shown}</summary><div class="mono">{whole}</div></details>'
        key = f' data-key="{html.escape(self.key)}"' if self.key else ""
        return f'<td class="{self.css}"{key}>{inside}</td>'


def number(text: str, css: str = "") -> Cell:
    """A cell with a number."""
    return Cell(text, css=f"n {css}".strip())


def table(head: Sequence[str], rows: Iterable[Sequence[str | Cell]], name: str = "") -> str:
    """A table as HTML; a column whose head begins with `#` has numbers."""
    heads = "".join(
        f'<th class="n">{html.escape(h[1:])}</th>'
        if h.startswith("#")
        else f"<th>{html.escape(h)}</th>"
        for h in head
    )
    body = "".join(
        f"<tr>{''.join(str(c if isinstance(c, Cell) else Cell(c)) for c in row)}</tr>"
        for row in rows
    )
    return f'<table class="rows" id="{name}"><thead><tr>{heads}</tr></thead><tbody>{body}</tbody></table>'


def path_of(run_id: str, *parts: str) -> str:
    """The address of a page of a run."""
    return "/".join(["", "run", *(urllib.parse.quote(each, safe="") for each in (run_id, *parts))])


def head(run: WatchedRun | None, title: str) -> ui.element:
    """The head of a page; None: of one that is about no single run."""
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
    """The heading of a part of a page."""
    return ui.label(title).classes("section")


def shown_text(content: str = "") -> ui.label:
    """A text of several lines, as it is."""
    return ui.label(content).classes("mono")


def markup(content: str = "") -> ui.html:
    """HTML of ours, in which all that comes from a program is escaped."""
    return ui.html(content, sanitize=False)


def on_change(version: Callable[[], object], show: Callable[[], Awaitable[None]]) -> None:
    """Shows what is there, now and whenever the version is another one.

    What takes long to draw, as thousands of edges do, is drawn more rarely.
    """
    shown: object = None
    not_before = 0.0

    async def look() -> None:
        nonlocal shown, not_before
        if time.monotonic() >= not_before and (present := version()) != shown:
            shown = present
            began_s = time.thread_time()
            await show()
            not_before = time.monotonic() + (time.thread_time() - began_s) / _SHARE

    ui.timer(LOOK_S, look)
