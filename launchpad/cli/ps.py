"""List the programs that run; with RUN, the workers of one."""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from launchpad.cli import runs
from launchpad.cli.runs import CommandError
from launchpad.courier import formatting
from launchpad.errors import LaunchError
from launchpad.launch.devices.device import listed
from launchpad.launch.rundir.record import RunRecord, WorkerStatus
from launchpad.telemetry.program_metrics import Metrics
from launchpad.view.looks import STATE_COLORS

ARGUMENTS = {
    "run": {"metavar": "RUN", "nargs": "?", "help": "show the workers of this one"},
    "--json": {"action": "store_true", "help": "as JSON; with RUN also its edges"},
}


def run(options: argparse.Namespace) -> None:
    """Prints one table, or JSON."""
    if options.run is not None:
        one = runs.find(options.run)
        with runs.connected(one) as client:
            workers, metrics = client.status(), _metrics(client)
        if options.json:
            _print_json(_details(one, workers, metrics))
        else:
            _show_workers(one, workers, metrics)
        return
    found = [(one, _states(one)) for one in runs.candidates(None)]
    if options.json:
        _print_json([_summary(one, states) for one, states in found])
        return
    if not found:
        print("no program of yours runs on this machine now")
        return
    header = ["RUN", "PROGRAM", "PID", "TYPE", "AGE", "WORKERS"]
    rows = []
    for one, states in found:
        counts = [f"{count} {state}" for state, count in (states or {}).items()]
        row = [one.run_id, one.program, str(one.pid), one.launch_type]
        workers_of_it = ", ".join(counts) or f"{len(one.workers)}, does not answer"
        rows.append([*row, formatting.age(time.time() - one.began), workers_of_it])
    gpus = [{gpu for of_worker in one.gpus.values() for gpu in of_worker} for one, _ in found]
    _show(header, rows, [sorted(each, key=lambda gpu: (len(gpu), gpu)) for each in gpus])


def _metrics(client: Any) -> Metrics | None:
    """The numbers of a program; None: where it was left they cannot be had."""
    try:
        metrics: Metrics = client.metrics(runs.LOOK_S)
    except LaunchError:
        return None
    return metrics


def _states(one: RunRecord) -> dict[str, int] | None:
    """How many workers are in which state, the most common first; None: it does not answer."""
    try:
        with runs.connected(one) as client:
            return dict(Counter(row["state"] for row in client.status()).most_common())
    except (CommandError, LaunchError):
        return None


def _show_workers(
    one: RunRecord, workers: Sequence[Mapping[str, Any]], metrics: Metrics | None
) -> None:
    """Prints a table of workers, and below it what is not of a single one."""
    numbers = {each.worker: each for each in metrics.workers} if metrics is not None else {}
    shared = None
    rows = []
    for worker in workers:
        known = numbers.get(worker["worker"])
        process = known.process if known is not None else None
        if process is not None and process.is_shared:
            shared, process = process, None
        rows.append(
            [
                worker["worker"],
                WorkerStatus(**worker).shown_state,
                str(worker["attempt"]),
                str(worker["pid"] or "-"),
                f"{process.cpu_percent:.0f}%" if process is not None else "-",
                _size(process.memory_bytes) if process is not None else "-",
                worker["log_path"],
                worker["cause"],
            ]
        )
    header = ["WORKER", "STATE", "ATTEMPT", "PID", "CPU", "MEM", "LOG", "CAUSE"]
    _show(header, rows, [worker["gpus"] for worker in workers])
    if shared is not None:
        used = f"CPU {shared.cpu_percent:.0f}%, MEM {_size(shared.memory_bytes)}"
        print(f"process {one.pid}, of which workers are threads: {used}")
    if metrics is not None and metrics.silent:
        print(f"no answer within {runs.LOOK_S:g} s from {', '.join(metrics.silent)}")


def _size(n_bytes: int) -> str:
    """In one word, so that columns can be counted."""
    return formatting.size(n_bytes).replace(" ", "")


def _summary(one: RunRecord, states: Mapping[str, int] | None) -> dict[str, Any]:
    """A program, as plain data."""
    names = ("run_id", "program", "launch_type", "pid", "host", "began", "logs")
    fields = {name: getattr(one, name) for name in names}
    return {**fields, "age_s": time.time() - one.began, "workers": states}


def _details(
    one: RunRecord, workers: Sequence[Mapping[str, Any]], metrics: Metrics | None
) -> dict[str, Any]:
    """A program with its workers and edges, as plain data."""
    found: dict[str, Any] = {"program": one.program, "run_id": one.run_id, "edges": None}
    if metrics is not None:
        found = metrics.to_dict()
    numbers = {each["worker"]: each for each in found.get("workers", ())}
    rows = [{**worker, **numbers.get(worker["worker"], {})} for worker in workers]
    for row in rows:
        del row["started_at"]  # by a clock of the launcher's; `uptime_s` is what it is good for
    return {**found, "workers": rows}


def _print_json(value: object) -> None:
    print(json.dumps(value, indent=2, allow_nan=False))


def _show(
    header: Sequence[str], rows: Sequence[Sequence[str]], gpus: Sequence[Sequence[str]]
) -> None:
    """Prints a table: with lines and colours on a terminal, else in aligned columns.

    The GPUs are its last column, if any row has some.
    """
    if any(gpus):
        header = [*header, "GPUS"]
        rows = [[*row, listed(ids) or "-"] for row, ids in zip(rows, gpus, strict=True)]
    rows = [[formatting.plain(cell) for cell in row] for row in rows]
    if not sys.stdout.isatty():
        print(*formatting.aligned([header, *rows]), sep="\n")
        return
    from rich.box import SIMPLE_HEAD
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=SIMPLE_HEAD, pad_edge=False)
    for name in header:
        table.add_column(name, overflow="fold")
    for row in rows:
        table.add_row(
            *(Text(cell, style=STATE_COLORS.get(cell.partition(",")[0], "")) for cell in row)
        )
    Console().print(table)
