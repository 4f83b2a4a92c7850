"""Tables: with lines and colours on a terminal, aligned columns for anybody else."""

from __future__ import annotations

import sys
from collections.abc import Sequence

_COLORS = {
    "running": "green",
    "succeeded": "green",
    "failed": "bold red",
    "lost": "bold red",
    "starting": "yellow",
    "stopping": "yellow",
    "restarting": "yellow",
}


def show(header: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Prints rows of text under a header."""
    if sys.stdout.isatty():
        _show_in_colors(header, rows)
        return
    widths = [max(len(row[i]) for row in (header, *rows)) for i in range(len(header))]
    for row in (header, *rows):
        print("  ".join(cell.ljust(w) for cell, w in zip(row, widths, strict=True)).rstrip())


def _show_in_colors(header: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    from rich.box import SIMPLE_HEAD
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=SIMPLE_HEAD, pad_edge=False)
    for name in header:
        table.add_column(name, overflow="fold")
    for row in rows:
        table.add_row(*(Text(cell, style=_COLORS.get(cell, "")) for cell in row))
    Console().print(table)
