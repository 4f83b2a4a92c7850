"""The terminal view of `launchpad top`: a running program, drawn by textual.

    title      program, run, states of its workers, calls per second
    workers    by group; a large group is folded until its row is chosen
    flows      calls between groups, by method, the most calls first
    log        the last lines of the chosen worker, or the stacks of its threads

One thread looks at the program at intervals. Everything is drawn in textual's thread.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar

from rich.text import Text
from textual import work
from textual.app import App, ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.screen import ModalScreen
from textual.widgets import DataTable, Footer, RichLog, Static

from launchpad.courier import CourierError, formatting
from launchpad.courier.formatting import seconds, size
from launchpad.errors import LaunchpadError
from launchpad.launch.logs import log_files
from launchpad.view.looks import (
    STATE_COLORS,
    Look,
    Observer,
    WorkerRow,
    counted,
    summary,
    titled,
    usage_cells,
    without_launchpad_frames,
)

_FOLDED_FROM = 9
"""A group of at least this many workers is folded into one row at first."""

_FLOWS = 50
_LINES = 200
_WORKERS = ("WORKER", "STATE", "ATTEMPT", "CPU", "MEM", "THREADS", "LAST END")
_COLUMNS = ("FROM", "TO", "METHOD", "CALLS/S", "p50", "p99", "BYTES/S", "ERRORS", "IN FLIGHT")


class Confirm(ModalScreen[bool]):
    """A question that the user must confirm before something that cannot be undone."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("y", "dismiss(True)", "yes"),
        Binding("n,escape", "dismiss(False)", "no"),
    ]
    CSS = """
    Confirm { align: center middle; }
    Confirm > Static { width: auto; padding: 1 3; border: round $warning; }
    """

    def __init__(self, question: str) -> None:
        super().__init__()
        self._question = question

    def compose(self) -> ComposeResult:
        yield Static(f"{self._question}  y / n", markup=False)


class Top(App[None]):
    """The terminal view of a program.

    Args:
        client: A client of the control endpoint, or an object with the same methods.
        title: A text about the program, for example `atari, run atari-1121-091533-3cf4, local_mp`.
        interval_s: Seconds between two looks.
        within_s: Seconds that workers may take to answer at each look.
    """

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("q", "quit", "quit"),
        Binding("r", "restart", "restart worker"),
        Binding("t", "stacks", "stacks"),
        Binding("l", "log", "log"),
        Binding("s", "stop", "stop program"),
        Binding("tab", "app.focus_next", "next table", show=False),
    ]
    CSS = """
    #title { height: 2; }
    #workers { height: 2fr; }
    #flows { height: 1fr; border-top: solid $primary; }
    #log { height: 1fr; border-top: solid $primary; }
    """

    def __init__(self, client: Any, title: str, interval_s: float, within_s: float) -> None:
        super().__init__()
        self._client = client
        self._title = formatting.plain(title)
        self._interval_s = interval_s
        self._within_s = within_s
        self._has_ended = threading.Event()
        self._look: Look | None = None
        # The groups that the user has folded or unfolded.
        self._toggled: set[str] = set()
        self._stacks_of = ""
        self._shown = ""

    def compose(self) -> ComposeResult:
        with Vertical():
            yield Static(self._title, id="title", markup=False)
            yield DataTable(id="workers", cursor_type="row", zebra_stripes=True)
            yield DataTable(id="flows", cursor_type="row", zebra_stripes=True)
            yield RichLog(id="log", max_lines=_LINES, wrap=True)
        yield Footer()

    def on_mount(self) -> None:
        """Start looking at the program."""
        self._table("workers").add_columns(*_WORKERS)
        self._table("flows").add_columns(*_COLUMNS)
        self._table("workers").focus()
        self._watch()

    def on_unmount(self) -> None:
        """End the thread that looks at the program."""
        self._has_ended.set()

    def on_data_table_row_highlighted(self, event: DataTable.RowHighlighted) -> None:
        """Show the log of the worker that was chosen."""
        if event.data_table.id == "workers" and self._look is not None:
            self._stacks_of = ""
            self._show_log()

    def on_data_table_row_selected(self, event: DataTable.RowSelected) -> None:
        """Fold or unfold the group on which Enter was pressed."""
        key = str(event.row_key.value)
        if event.data_table.id == "workers" and key.startswith("group:"):
            self._toggled ^= {key.removeprefix("group:")}
            self._show_workers()

    def action_log(self) -> None:
        self._stacks_of = ""
        self._show_log()

    def action_stacks(self) -> None:
        worker = self._chosen()
        if worker is not None:
            self._stacks_of = worker.name
            self._fetch_stacks(worker.name)

    def action_restart(self) -> None:
        worker = self._chosen()
        if worker is not None:
            name = worker.name
            self._ask(f"Restart {name}?", lambda: self._client.restart(name))

    def action_stop(self) -> None:
        self._ask("Stop the program?", lambda: self._client.stop(False))

    def _ask(self, question: str, do: Callable[[], object]) -> None:
        def answered(is_sure: bool | None) -> None:
            if is_sure:
                self._command(do)

        self.push_screen(Confirm(question), answered)

    @work(thread=True)
    def _command(self, do: Callable[[], object]) -> None:
        try:
            do()
        except (CourierError, LaunchpadError, AttributeError) as error:
            self.call_from_thread(self.notify, str(error), severity="error", markup=False)

    @work(thread=True)
    def _fetch_stacks(self, name: str) -> None:
        try:
            stacks = without_launchpad_frames(self._client.stacks([name])[name])
        except (CourierError, LaunchpadError) as error:
            stacks = str(error)
        self.call_from_thread(self._show_text, stacks, name)

    @work(thread=True)
    def _watch(self) -> None:
        """Look at the program until the program or the view has ended."""
        observer = Observer(self._client, self._within_s)
        while not self._has_ended.is_set():
            try:
                look = observer.look()
            except (CourierError, OSError):
                self._has_ended.set()
                self.call_from_thread(self._show_end)
                return
            self.call_from_thread(self._show, look)
            self._has_ended.wait(self._interval_s)

    def _table(self, name: str) -> DataTable[Any]:
        return self.query_one(f"#{name}", DataTable)

    def _chosen(self) -> WorkerRow | None:
        """Return the worker in the cursor's row. If this is the row of a group, return its first worker."""
        table = self._table("workers")
        if self._look is None or not table.is_valid_row_index(table.cursor_row):
            return None
        key = table.coordinate_to_cell_key(table.cursor_coordinate).row_key.value or ""
        kind, _, name = key.partition(":")
        rows = self._look.groups.get(name, []) if kind == "group" else self._look.workers
        return next((row for row in rows if kind == "group" or row.name == name), None)

    def _show(self, look: Look) -> None:
        self._look = look
        line = summary(look, look.flows)
        self.query_one("#title", Static).update(Text(f"{self._title}\n{line}"))
        self._show_workers()
        table = self._table("flows")
        at = table.cursor_row
        table.clear()
        for flow in look.flows[:_FLOWS]:
            table.add_row(
                *(Text(formatting.plain(name)) for name in (flow.caller, flow.server, flow.method)),
                _right(f"{'' if flow.is_exact else '≥ '}{flow.calls_per_s:,.0f}"),
                _right(seconds(flow.p50_s)),
                _right(seconds(flow.p99_s)),
                _right(size(round(flow.bytes_per_s))),
                Text(f"{flow.errors:,}", "bold red" if flow.errors else "", justify="right"),
                _right(f"{flow.in_flight:,}"),
            )
        table.move_cursor(row=min(at, table.row_count - 1), scroll=False)
        if not self._stacks_of:
            self._show_log()

    def _show_workers(self) -> None:
        assert self._look is not None
        table = self._table("workers")
        key = None
        if table.is_valid_row_index(table.cursor_row):
            key = table.coordinate_to_cell_key(table.cursor_coordinate).row_key.value
        scroll_y = table.scroll_y
        with self.prevent(DataTable.RowHighlighted):
            table.clear()
            for label, workers in self._look.groups.items():
                is_folded = (len(workers) >= _FOLDED_FROM) != (label in self._toggled)
                if len(workers) > 1:
                    mark = "▸" if is_folded else "▾"
                    table.add_row(
                        Text(f"{mark} {titled(label, workers)}", "bold"),
                        counted(workers),
                        Text(),
                        *map(_right, usage_cells(workers)),
                        Text(),
                        key=f"group:{label}",
                    )
                for worker in () if is_folded and len(workers) > 1 else workers:
                    indent = "  " if len(workers) > 1 else ""
                    color = STATE_COLORS.get(worker.first_state, "")
                    table.add_row(
                        Text(f"{indent}{worker.name}"),
                        Text(formatting.plain(worker.state), color),
                        _right(f"{worker.attempt}"),
                        *map(_right, usage_cells([worker])),
                        Text(formatting.plain(worker.cause)),
                        key=f"worker:{worker.name}",
                    )
            if key is not None and key in table.rows:
                table.move_cursor(row=table.get_row_index(key), scroll=False)
            table.scroll_to(y=scroll_y, animate=False)

    def _show_log(self) -> None:
        worker = self._chosen()
        if worker is not None:
            lines = log_files.last_lines(Path(worker.log_path), _LINES)
            self._show_text("\n".join(lines), "")

    def _show_text(self, text: str, stacks_of: str) -> None:
        """Show a log or stacks, unless the user has chosen something else in the meantime."""
        # Don't draw unchanged text again, because this would undo the user's scrolling at each look.
        if stacks_of == self._stacks_of and text != self._shown:
            self._shown = text
            log = self.query_one("#log", RichLog)
            log.clear()
            log.write(Text(text), scroll_end=not stacks_of)
            # The most important part of stacks is at the top.
            if stacks_of:
                log.scroll_to(y=0, animate=False)

    def _show_end(self) -> None:
        self.query_one("#title", Static).update(Text(f"{self._title}\nit has ended · q: quit"))


def _right(text: str) -> Text:
    return Text(text, justify="right")
