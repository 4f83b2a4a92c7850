"""List the programs that run; with RUN, the workers of one."""

from __future__ import annotations

import argparse
import time
from collections import Counter
from collections.abc import Sequence

from launchpad.cli import runs, tables
from launchpad.cli.runs import CommandError
from launchpad.launch.gpus.device import listed
from launchpad.launch.record import RunRecord

_UNITS = (("d", 86_400), ("h", 3600), ("min", 60))


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """`ps [RUN]`."""
    parser.add_argument("run", metavar="RUN", nargs="?", help="show the workers of this one")


def run(options: argparse.Namespace) -> None:
    """Prints one table."""
    if options.run is not None:
        _show_workers(runs.living(options.run))
        return
    found = runs.all_living()
    if not found:
        print("no program of yours runs on this machine now")
        return
    header = ["RUN", "PROGRAM", "PID", "TYPE", "AGE", "WORKERS"]
    _show(header, [_row(one) for one in found], [_all_gpus(one) for one in found])


def _row(one: RunRecord) -> tuple[str, ...]:
    return (
        one.run_id,
        one.program,
        str(one.pid),
        one.launch_type,
        age(time.time() - one.began),
        _workers(one),
    )


def _workers(one: RunRecord) -> str:
    """How many are in which state."""
    try:
        with runs.connected(one) as client:
            counts = Counter(row["state"] for row in client.status())
    except CommandError:
        return f"{len(one.workers)}, does not answer"
    return ", ".join(f"{count} {state}" for state, count in counts.most_common())


def _show_workers(one: RunRecord) -> None:
    with runs.connected(one) as client:
        rows = client.status()
    header = ["WORKER", "STATE", "ATTEMPT", "PID", "LOG", "CAUSE"]
    cells = [
        (
            row["worker"],
            row["state"],
            str(row["attempt"]),
            str(row["pid"] or "-"),
            row["log_path"],
            row["cause"],
        )
        for row in rows
    ]
    _show(header, cells, [row["gpus"] for row in rows])


def _show(
    header: Sequence[str], rows: Sequence[Sequence[str]], gpus: Sequence[Sequence[str]]
) -> None:
    """Prints a table; who has which GPUs stands behind, where anybody has any."""
    if any(gpus):
        header = [*header, "GPUS"]
        rows = [[*row, listed(ids) or "-"] for row, ids in zip(rows, gpus, strict=True)]
    tables.show(header, rows)


def _all_gpus(one: RunRecord) -> list[str]:
    """Those of all workers, each once."""
    return sorted({gpu for gpus in one.gpus.values() for gpu in gpus}, key=lambda g: (len(g), g))


def age(seconds: float) -> str:
    """A length of time in its two largest units."""
    parts: list[str] = []
    left = int(max(seconds, 0))
    for name, length in _UNITS:
        if left >= length or parts:
            parts.append(f"{left // length} {name}")
            left %= length
    return " ".join([*parts, f"{left} s"][:2])
