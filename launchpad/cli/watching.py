"""The commands that show running programs: `ps`, `stacks`, `metrics`, and the views `top` and `view`."""

from __future__ import annotations

import argparse
import json
import os
import sys
import threading
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from launchpad.cli import runs
from launchpad.cli.command import CommandError, argument, command, run_argument
from launchpad.courier import extras, formatting
from launchpad.errors import LaunchError
from launchpad.launch.devices.device import listed
from launchpad.launch.rundir.record import RunRecord
from launchpad.telemetry.program_metrics import Metrics
from launchpad.view.looks import STATE_COLORS, Look, without_launchpad_frames


@command(
    run_argument("show the workers of this one"),
    argument("--json", action="store_true", help="as JSON; with RUN also its edges"),
)
def ps(options: argparse.Namespace) -> None:
    """List the programs that run; with RUN, the workers of one."""
    if options.run is not None:
        run = runs.find(options.run)
        with runs.connected(run) as client:
            status = client.status()
            metrics = _metrics(client)
        if options.json:
            _print_json(_details(run, status, metrics))
        else:
            _print_workers(run, status, metrics)
        return
    states = [(run, _states(run)) for run in runs.candidates(None)]
    if options.json:
        _print_json([_summary(run, of_workers) for run, of_workers in states])
    elif states:
        _print_runs(states)
    else:
        print("no program of yours runs on this machine now")


def _metrics(client: Any) -> Metrics | None:
    """Return the metrics of a program. Return None for a detached program whose metrics are not available."""
    try:
        metrics: Metrics = client.metrics(runs.LOOK_S)
    except LaunchError:
        return None
    return metrics


def _states(run: RunRecord) -> dict[str, int] | None:
    """Count the workers in each state, the most common first. None if the program does not answer."""
    try:
        with runs.connected(run) as client:
            return dict(Counter(row["state"] for row in client.status()).most_common())
    except (CommandError, LaunchError):
        return None


def _print_runs(states: Sequence[tuple[RunRecord, Mapping[str, int] | None]]) -> None:
    rows = []
    gpus = []
    for run, of_workers in states:
        counts = [f"{count} {state}" for state, count in (of_workers or {}).items()]
        rows.append(
            [
                run.run_id,
                run.program,
                str(run.pid),
                run.launch_type,
                formatting.age(time.time() - run.began),
                ", ".join(counts) or f"{len(run.workers)}, does not answer",
            ]
        )
        of_run = {gpu for of_worker in run.gpus.values() for gpu in of_worker}
        gpus.append(sorted(of_run, key=lambda gpu: (len(gpu), gpu)))
    _print_table(["RUN", "PROGRAM", "PID", "TYPE", "AGE", "WORKERS"], rows, gpus)


def _print_workers(
    run: RunRecord, status: Sequence[Mapping[str, Any]], metrics: Metrics | None
) -> None:
    """Print a table of workers, and below it lines about several workers."""
    rows = []
    for worker, plain in zip(Look.of(status, metrics).workers, status, strict=True):
        usage = worker.usage
        rows.append(
            [
                worker.name,
                worker.state,
                str(worker.attempt),
                str(plain["pid"] or "-"),
                f"{usage.cpu_percent:.0f}%" if usage is not None else "-",
                _size(usage.memory_bytes) if usage is not None else "-",
                worker.log_path,
                worker.cause,
            ]
        )
    header = ["WORKER", "STATE", "ATTEMPT", "PID", "CPU", "MEM", "LOG", "CAUSE"]
    _print_table(header, rows, [plain["gpus"] for plain in status])
    if metrics is None:
        return
    usages = [worker.process for worker in metrics.workers if worker.process is not None]
    shared_usages = [usage for usage in usages if usage.is_shared]
    if shared_usages:
        usage_text = (
            f"CPU {shared_usages[-1].cpu_percent:.0f}%, MEM {_size(shared_usages[-1].memory_bytes)}"
        )
        print(f"process {run.pid}, of which workers are threads: {usage_text}")
    if metrics.silent:
        print(f"no answer within {runs.LOOK_S:g} s from {', '.join(metrics.silent)}")


def _size(n_bytes: int) -> str:
    """Format a size as one word, so that scripts can split columns at spaces."""
    return formatting.size(n_bytes).replace(" ", "")


def _summary(run: RunRecord, states: Mapping[str, int] | None) -> dict[str, Any]:
    """Return a program as plain data."""
    names = ("run_id", "program", "launch_type", "pid", "host", "began", "logs")
    fields = {name: getattr(run, name) for name in names}
    return {**fields, "age_s": time.time() - run.began, "workers": states}


def _details(
    run: RunRecord, status: Sequence[Mapping[str, Any]], metrics: Metrics | None
) -> dict[str, Any]:
    """Return a program with its workers and edges as plain data."""
    details: dict[str, Any] = {"program": run.program, "run_id": run.run_id, "edges": None}
    if metrics is not None:
        details = metrics.to_dict()
    numbers = {worker["worker"]: worker for worker in details.get("workers", ())}
    rows = [{**worker, **numbers.get(worker["worker"], {})} for worker in status]
    for row in rows:
        # This time is by the launcher's own clock, and means nothing here. `uptime_s` has the useful part.
        del row["started_at"]
    return {**details, "workers": rows}


def _print_json(value: object) -> None:
    print(json.dumps(value, indent=2, allow_nan=False))


def _print_table(
    header: Sequence[str], rows: Sequence[Sequence[str]], gpus: Sequence[Sequence[str]]
) -> None:
    """Print a table: with lines and colours on a terminal, otherwise in aligned columns.

    If any row has GPUs, they are the last column.
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
        styles = (STATE_COLORS.get(cell.partition(",")[0], "") for cell in row)
        table.add_row(*map(Text, row, styles))
    Console().print(table)


@command(
    run_argument(),
    argument("label", metavar="LABEL", nargs="?", help="only of this group or worker"),
    argument("--all", action="store_true", help="launchpad's own threads, too"),
)
def stacks(options: argparse.Namespace) -> None:
    """Print where the threads of the workers are now.

    Threads that run nothing but launchpad and Python's own library are only counted; --all shows them too.
    """
    run = None
    label = options.label
    # A single word names either a run, or a group or worker of the only run.
    if options.run is not None and label is None:
        candidates = runs.candidates(options.run)
        if len(candidates) == 1 and not runs.matching(candidates, options.run):
            run = candidates[0]
            label = options.run
    run = run or runs.find(options.run)
    workers = runs.workers_of(run, label)
    with runs.connected(run) as client:
        alive = [row for row in client.status() if row["state"] in runs.ALIVE]
        rows = [row for row in alive if label is None or row["worker"] in workers]
        texts = client.stacks([row["worker"] for row in rows])
    for row in rows:
        text = texts[row["worker"]].rstrip()
        print(f"=== {row['worker']} (pid {row['pid'] or run.pid}, {row['state']})")
        print(text if options.all else without_launchpad_frames(text), end="\n\n")
    if not rows:
        subject = "no worker" if label is None else f"no worker of {label!r}"
        print(f"{subject} of {run.run_id} runs now")


@command(run_argument())
def metrics(options: argparse.Namespace) -> None:
    """Print the numbers of a program as text for Prometheus.

    Calls over edges, CPU and memory of workers; for a person they are in `ps`.
    """
    with runs.connected(runs.find(options.run)) as client:
        numbers = client.metrics(runs.LOOK_S)
    print(numbers.to_prometheus(), end="")


@command(
    run_argument(),
    argument(
        "--interval",
        type=float,
        default=1.0,
        metavar="SECONDS",
        help="between two looks; the default is 1",
    ),
)
def top(options: argparse.Namespace) -> None:
    """Watch a program that runs, in the terminal: workers, calls between groups, logs; restart and stop.

    It is shown until `q` is pressed.
    """
    try:
        from launchpad.view.terminal import Top
    except ImportError as error:
        raise CommandError(
            f"`top` needs textual, which cannot be imported here ({error}): {extras.install_command('top')}"
        ) from error
    if options.interval <= 0:
        raise CommandError(f"--interval {options.interval} must be more than 0 seconds")
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise CommandError("`top` needs a terminal; without one, see `launchpad ps RUN --json`")
    run = runs.find(options.run)
    title = f"{run.program} · {run.run_id} · {run.launch_type}"
    with runs.connected(run) as client:
        app = Top(client, title, options.interval, runs.LOOK_S)
        app.run()
    # If the app failed, textual has printed the error.
    if app.return_code:
        raise SystemExit(app.return_code)


@command(
    run_argument("which is shown first, also one that has ended"),
    argument(
        "--port",
        type=int,
        default=0,
        metavar="PORT",
        help="on 127.0.0.1; the default is a free one",
    ),
    argument(
        "--control",
        action="store_true",
        help="with buttons that stop a program and restart a worker; else the page only shows",
    ),
)
def view(options: argparse.Namespace) -> None:
    """Watch programs in the browser: graph, workers, logs, failures; of runs that have ended, too.

    The page is on a port of this machine until Ctrl-C, and opens with the address that is printed, once. It
    only shows, unless --control is given: then it has buttons that stop a program and restart a worker.
    """
    # Show the list of all runs first, unless the user names a run, or only one run is running.
    first = None
    if options.run is not None:
        first = runs.find_also_ended(options.run)
    else:
        running = runs.candidates(None)
        if len(running) == 1:
            first = running[0]
    _serve(first, options.port, may_control=options.control)


def view_beside_a_script(run_id: str) -> None:
    """Serve the pages until stdin closes. It closes when the script that started this process ends."""

    def end() -> None:
        while os.read(0, 1):
            continue
        os._exit(0)

    threading.Thread(target=end, daemon=True).start()
    try:
        _serve(runs.find_also_ended(run_id), 0, may_control=False)
    except CommandError as error:
        raise SystemExit(f"launchpad: {error}") from error


def _serve(first: RunRecord | None, port: int, *, may_control: bool) -> None:
    try:
        from launchpad.view import server
        from launchpad.view.pages.frame import path_of
        from launchpad.view.pages.runs import RunList
    except ImportError as error:
        raise CommandError(
            f"`view` needs NiceGUI, which cannot be imported here ({error}): {extras.install_command('view')}"
        ) from error
    run_list = RunList(runs.every_run, runs.connected, may_control=may_control)
    start = "/"
    if first is not None:
        run_list.watch(first)
        start = path_of(first.run_id)
    try:
        server.serve(run_list, start, port, _print_address)
    except OSError as error:
        raise CommandError(f"port {port} of 127.0.0.1 cannot be used: {error}") from error


def _print_address(url: str) -> None:
    print(f"launchpad view: {url}\n(opens once, in one browser; Ctrl-C ends it)", flush=True)
