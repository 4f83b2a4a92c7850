"""Status lines of a program, at the bottom of the launching script's terminal.

    rows 1 … n - k    output of the workers, of the script and of its children scrolls here
    the last k rows   ───────────────────────────────────────────────────────────────────────────────
                      demo · local_mp · up 12.3 s · 11 running, 1 restarting · 3 restarts · 515 calls/s
                      actor → table   write   424 calls/s   p50 322 µs   p99 2.19 ms   10.4 KiB/s

The terminal itself keeps the two parts apart, by its scrolling region (DECSTBM). So no other code needs to
know about the status lines, and no output is lost. They are set up again when the terminal's size changes.
"""

from __future__ import annotations

import contextlib
import math
import os
import threading
from collections.abc import Sequence
from dataclasses import asdict
from types import SimpleNamespace
from typing import TYPE_CHECKING, NamedTuple, TextIO

from rich.console import Console
from rich.text import Text

from launchpad.courier import CourierError
from launchpad.courier.formatting import seconds, size
from launchpad.errors import LaunchpadError
from launchpad.view.looks import Look, Observer, counted

if TYPE_CHECKING:
    from launchpad.launch.running import Running

_LOOK_S = 1.0
_FLOWS = 2
_LEAST_ROWS = 10
"""A terminal with fewer rows shows no status lines."""

_SAVE = "\x1b7"
_RESTORE = "\x1b8"
_WHOLE = "\x1b[r"
_ERASE_BELOW = "\x1b[J"
_ERASE_LINE = "\x1b[2K"
_DOWN = "\x1bD"
"""Moves the cursor a row down in the same column. If it is in the last row, everything scrolls up."""

_on_the_terminal = threading.Lock()
"""A lock of the program whose lines are shown, so that two programs don't write lines at the same time."""


class _DrawnLines(NamedTuple):
    """The size of the terminal at the last drawing, and the lines that were drawn."""

    columns: int
    rows: int
    lines: Sequence[Text]


class StatusLines:
    """The status lines of one program. `draw` and `close` may be called from any thread.

    Args:
        stream: The terminal.
        title: The text with which the first line begins.
    """

    def __init__(self, stream: TextIO, title: str) -> None:
        self._stream = stream
        self._title = title
        self._console = Console(file=stream, highlight=False)
        self._lines: Sequence[Text] = [Text(f"{title} · starting", "bold")]
        self._drawn = _DrawnLines(0, 0, [])
        self._is_shown = False
        # Threads must not mix their escape sequences. After `close`, no thread may draw any more, because its
        # lines would stay in the middle of later output.
        self._lock = threading.Lock()
        self._is_closed = threading.Event()

    def watch(self, running: Running) -> None:
        """Look at a program once a second, until it has ended or `close` is called."""
        threading.Thread(
            target=self._watch, args=(running,), name="launchpad-status", daemon=True
        ).start()

    def draw(self) -> None:
        """Show the lines if something changed. Do nothing if the terminal refuses."""
        with self._lock, contextlib.suppress(OSError, ValueError):
            if self._is_closed.is_set():
                return
            # Another program may show its lines there. Don't wait for its end, because the next call tries
            # again.
            self._is_shown = self._is_shown or _on_the_terminal.acquire(blocking=False)
            if not self._is_shown:
                return
            columns, rows = os.get_terminal_size(self._stream.fileno())
            lines = [Text("─" * columns, "dim"), *self._lines] if rows >= _LEAST_ROWS else []
            before = self._drawn
            self._drawn = _DrawnLines(columns, rows, lines)
            if before == self._drawn:
                return
            text = ""
            if (columns, rows, len(lines)) != (before.columns, before.rows, len(before.lines)):
                text += f"{_SAVE}{_WHOLE}{_RESTORE}{_ERASE_BELOW}"
                if lines:
                    text += f"{_DOWN * len(lines)}\x1b[{len(lines)}A{_SAVE}"
                    text += f"\x1b[1;{rows - len(lines)}r{_RESTORE}"
            for row, line in enumerate(lines, rows - len(lines) + 1):
                text += f"{_SAVE}\x1b[{row};1H{_ERASE_LINE}{self._ansi(line, columns)}{_RESTORE}"
            self._write(text)

    def close(self) -> None:
        """Release the terminal. Later output goes right below the last output."""
        with self._lock, contextlib.suppress(OSError, ValueError):
            self._is_closed.set()
            if self._is_shown:
                self._is_shown = False
                _on_the_terminal.release()
                if self._drawn.lines:
                    self._write(f"{_SAVE}{_WHOLE}{_RESTORE}{_ERASE_BELOW}")

    def _watch(self, running: Running) -> None:
        client = SimpleNamespace(
            status=lambda: [asdict(row) for row in running.status()], metrics=running.metrics
        )
        observer = Observer(client, _LOOK_S)
        while not self._is_closed.wait(_LOOK_S) and not running.is_done:
            with contextlib.suppress(CourierError, LaunchpadError):
                self._lines = lines_of(observer.look(), self._title)

    def _ansi(self, line: Text, columns: int) -> str:
        line = line.copy()
        line.truncate(columns, overflow="ellipsis")
        with self._console.capture() as capture:
            self._console.print(line, end="", soft_wrap=True)
        return capture.get()

    def _write(self, text: str) -> None:
        encoding = self._stream.encoding
        self._stream.write(text.encode(encoding, "replace").decode(encoding))
        self._stream.flush()


def on(stream: TextIO, title: str) -> StatusLines | None:
    """Return status lines on a terminal. None if the stream is not a terminal with a movable cursor."""
    console = Console(file=stream)
    if not console.is_terminal or console.is_dumb_terminal or not stream.isatty():
        return None
    return StatusLines(stream, title)


def lines_of(look: Look, title: str) -> list[Text]:
    """Return the lines about a program."""
    metrics = look.metrics
    parts = [title, counted(look.workers)]
    if metrics is not None:
        parts.insert(1, f"up {seconds(metrics.uptime_s)}")
    n_restarts = sum(worker.n_restarts for worker in look.workers)
    if n_restarts:
        s = "" if n_restarts == 1 else "s"
        parts.append(f"{n_restarts} restart{s}")
    if look.flows:
        parts.append(f"{sum(flow.calls_per_s for flow in look.flows):,.0f} calls/s")
    first = Text(" · ".join(parts))
    first.stylize("bold", 0, len(title))
    lines = [first]
    for flow in look.flows[:_FLOWS]:
        line = Text(f"{flow.caller} → {flow.server}", "cyan")
        line.append(f"  {flow.method}  {flow.calls_per_s:,.0f} calls/s", "default")
        if not math.isnan(flow.p50_s):
            line.append(f"  p50 {seconds(flow.p50_s)}  p99 {seconds(flow.p99_s)}", "default")
        line.append(f"  {size(round(flow.bytes_per_s))}/s", "default")
        if flow.errors:
            line.append(f"  {flow.errors:,} errors", "bold red")
        lines.append(line)
    return lines
