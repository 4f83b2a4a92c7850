"""List the programs that run; with RUN, the workers of one."""

from __future__ import annotations

import argparse
import sys
import time
from collections import Counter
from collections.abc import Sequence

from launchpad.cli import runs
from launchpad.cli.runs import CommandError
from launchpad.errors import LaunchError
from launchpad.launch.devices.device import listed
from launchpad.launch.plan import aligned
from launchpad.launch.rundir.record import RunRecord

_UNITS = (("d", 86_400), ("h", 3600), ("min", 60))
_COLORS = {
    "running": "green",
    "succeeded": "green",
    "failed": "bold red",
    "lost": "bold red",
    "starting": "yellow",
    "stopping": "yellow",
    "restarting": "yellow",
}


ARGUMENTS = {"run": {"metavar": "RUN", "nargs": "?", "help": "show the workers of this one"}}


def run(options: argparse.Namespace) -> None:
    """Prints one table."""
    rows: list[list[str]]
    if options.run is not None:
        with runs.connected(runs.find(options.run)) as client:
            workers = client.status()
        header = ["WORKER", "STATE", "ATTEMPT", "PID", "LOG", "CAUSE"]
        rows = [
            [
                w["worker"],
                ", ".join(filter(None, (w["state"], w["next_start"]))),
                str(w["attempt"]),
                str(w["pid"] or "-"),
                w["log_path"],
                w["cause"],
            ]
            for w in workers
        ]
        _show(header, rows, [worker["gpus"] for worker in workers])
        return
    found = runs.candidates(None)
    if not found:
        print("no program of yours runs on this machine now")
        return
    header = ["RUN", "PROGRAM", "PID", "TYPE", "AGE", "WORKERS"]
    rows = []
    for one in found:
        row = [one.run_id, one.program, str(one.pid), one.launch_type]
        rows.append([*row, age(time.time() - one.began), _count_workers(one)])
    gpus = [{gpu for of_worker in one.gpus.values() for gpu in of_worker} for one in found]
    _show(header, rows, [sorted(each, key=lambda gpu: (len(gpu), gpu)) for each in gpus])


def _count_workers(one: RunRecord) -> str:
    """How many are in which state."""
    try:
        with runs.connected(one) as client:
            counts = Counter(row["state"] for row in client.status())
    except (CommandError, LaunchError):
        return f"{len(one.workers)}, does not answer"
    return ", ".join(f"{count} {state}" for state, count in counts.most_common())


def _show(
    header: Sequence[str], rows: Sequence[Sequence[str]], gpus: Sequence[Sequence[str]]
) -> None:
    """Prints a table: with lines and colours on a terminal, else in aligned columns.

    The GPUs are its last column, if any row has some.
    """
    if any(gpus):
        header = [*header, "GPUS"]
        rows = [[*row, listed(ids) or "-"] for row, ids in zip(rows, gpus, strict=True)]
    if not sys.stdout.isatty():
        print(*aligned([header, *rows]), sep="\n")
        return
    from rich.box import SIMPLE_HEAD
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=SIMPLE_HEAD, pad_edge=False)
    for name in header:
        table.add_column(name, overflow="fold")
    for row in rows:
        table.add_row(*(Text(cell, style=_COLORS.get(cell.partition(",")[0], "")) for cell in row))
    Console().print(table)


def age(seconds: float) -> str:
    """A length of time in its two largest units."""
    parts: list[str] = []
    left = int(max(seconds, 0))
    for name, length in _UNITS:
        if left >= length or parts:
            parts.append(f"{left // length} {name}")
            left %= length
    return " ".join([*parts, f"{left} s"][:2])
