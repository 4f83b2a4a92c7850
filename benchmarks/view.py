"""The time to the first paint of the page of a large program, and its cost: `python benchmarks/view.py`.

    python benchmarks/view.py --workers=500 --edges=5000 --seconds=20

A control endpoint answers like a program with that many workers and edges, whose counts grow all the time.
`launchpad view` shows that program in Chromium, first with all groups folded, then with all unfolded. The
script prints the time from the request of the page to the first paint, in a fresh browser. It also prints the
CPU time of `launchpad view` after the first paint, in percent of one core.

The script exits with 1 if the first paint takes more than 2 s, or the view more than 20 % of a core.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil

import launchpad as lp
from benchmarks.harness.command_line import Parser, finish
from launchpad.courier.telemetry.call_stats import MethodStats
from launchpad.graph.picture import picture_of
from launchpad.launch.rundir import control_server, record
from launchpad.launch.rundir.directory import RunDirectory
from launchpad.launch.rundir.history import RunHistory
from launchpad.launch.rundir.record import WorkerStatus
from launchpad.telemetry import edge_stats as stats
from launchpad.telemetry.process_usage import ProcessUsage
from launchpad.telemetry.program_metrics import Metrics, WorkerMetrics
from tests.helpers.browsers import chromium
from tests.view.pages import press

PAINT_S = 2.0
CORE_PERCENT = 20.0
GROUPS = 10


class Server:
    def step(self) -> None:
        pass


def call(servers: list[Any]) -> None:
    pass


class Program:
    """The answers of a large program.

    Args:
        workers: The number of workers, a tenth of which serve.
        edges: The number of edges.
    """

    def __init__(self, workers: int, edges: int) -> None:
        self._began = time.monotonic()
        program = lp.Program("large")
        with program.group("server"):
            nodes = [lp.CourierNode(Server) for _ in range(workers // GROUPS)]
            servers = [program.add_node(node) for node in nodes]
        for group in range(1, GROUPS):
            with program.group(f"caller_{group}"):
                for _ in range(workers // GROUPS):
                    program.add_node(lp.PyNode(call, servers))
        self.plan = lp.plan(program, "local_mt")
        callers = [w.name for w in self.plan.workers if w.group != "server"]
        serving = [w.name for w in self.plan.workers if w.group == "server"]
        self._places = [
            (callers[n % len(callers)], serving[n // len(callers) % len(serving)], "step")
            for n in range(edges)
        ]

    def status(self) -> list[WorkerStatus]:
        return [
            WorkerStatus(w.name, w.group, "running", 1, "", f"/tmp/{w.name}.log", 1, 0.0)
            for w in self.plan.workers
        ]

    def metrics(self, within_s: float) -> Metrics:
        uptime_s = time.monotonic() - self._began
        n = round(uptime_s * 100)
        buckets = (0, 0, 0, 0, 0, 0, 0, n // 2, n // 3, n - n // 2 - n // 3, *[0] * 38)
        method_stats = MethodStats(
            calls=n,
            errors=0,
            in_flight=1,
            bytes_in=80 * n,
            bytes_out=8 * n,
            total_s=n / 1e4,
            buckets=buckets,
        )
        rows = [(place, method_stats) for place in self._places]
        names = {w.name for w in self.plan.workers}
        usage = ProcessUsage(uptime_s / 10, uptime_s, 30_000_000, 5, False)
        workers = (
            WorkerMetrics(w.name, w.group, "running", 1, uptime_s, False, usage)
            for w in self.plan.workers
        )
        edges = stats.gathered(rows, rows, names, (), uptime_s)
        return Metrics("large", "large", uptime_s, uptime_s, tuple(workers), edges)

    @contextlib.contextmanager
    def served(self) -> Iterator[str]:
        """Serve the control endpoint of a run during the block; give the id of the run."""
        run = RunDirectory.create(self.plan.program)
        run.make_runtime()
        try:
            record.write(run, self.plan)
            server = control_server.serve(
                run.runtime,
                status=self.status,
                stop=lambda at_once: None,
                stacks=lambda worker: "",
                restart=lambda worker: None,
                metrics=lambda within_s: dataclasses.replace(
                    self.metrics(within_s), run_id=run.run_id
                ),
                trace=lambda seconds: NotImplemented,
                picture=lambda: dataclasses.asdict(picture_of(self.plan)),
                history=lambda: RunHistory("large"),
                attach=lambda *about: None,
            )
            try:
                yield run.run_id
            finally:
                server.stop(0.1)
        finally:
            run.remove()


@contextlib.contextmanager
def open_view(run_id: str) -> Iterator[tuple[psutil.Process, Any]]:
    """Start `launchpad view` and a browser that shows the page of the run; give both."""
    command = [sys.executable, "-m", "launchpad", "view", run_id]
    with (
        tempfile.TemporaryDirectory() as profile,
        subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as view,
    ):
        assert view.stdout is not None
        try:
            address = re.search(r"http://\S+", view.stdout.readline())
            assert address is not None
            with chromium(Path(profile)) as browser:
                browser.get("about:blank")
                browser.get(address[0])
                yield psutil.Process(view.pid), browser
        finally:
            view.send_signal(signal.SIGINT)


def percent_of_a_core(process: psutil.Process, seconds: float) -> float:
    """Return the CPU time of a process over the next seconds, in percent of one core."""
    before = process.cpu_times()
    began = time.monotonic()
    time.sleep(seconds)
    now = process.cpu_times()
    took_s = time.monotonic() - began
    return 100 * (now.user + now.system - before.user - before.system) / took_s


def seconds_of(browser: Any, script: str) -> float:
    """Run a script in the browser until it returns milliseconds; return them as seconds."""
    while True:
        ms = browser.execute_script(script)
        if ms is not None:
            return float(ms) / 1000
        time.sleep(0.05)


FIRST_PAINT = (
    "const [paint] = performance.getEntriesByName('first-contentful-paint');"
    " return paint ? paint.startTime : null"
)
GRAPH = "return document.querySelector('#graph svg path') ? performance.now() : null"


def main() -> None:
    options = Parser(__doc__, workers=500, edges=5000, seconds=20.0).parse_args()
    program = Program(options.workers, options.edges)
    print(f"{options.workers:,} workers, {options.edges:,} edges, {os.cpu_count()} cores")
    with program.served() as run_id, open_view(run_id) as (view, browser):
        paint_s = seconds_of(browser, FIRST_PAINT)
        with_graph_s = seconds_of(browser, GRAPH)
        print(f"first paint {paint_s:.2f} s; with the graph {with_graph_s:.2f} s")
        time.sleep(2.0)  # wait until everything that happens once, such as imports, is over
        folded = percent_of_a_core(view, options.seconds)
        print(f"folded    {folded:.1f} % of a core")
        for group in ["server", *(f"caller_{n}" for n in range(1, GROUPS))]:
            press(browser, f"#workers [data-key='group:{group}']")
        unfolded = percent_of_a_core(view, options.seconds)
        boxes = browser.execute_script("return document.querySelectorAll('#graph g').length")
        print(f"unfolded  {unfolded:.1f} % of a core, {boxes:,} boxes and arrows")
    is_slow = paint_s > PAINT_S or max(folded, unfolded) > CORE_PERCENT
    finish(options, {}, ["the page is late, or costs too much"] * is_slow)


if __name__ == "__main__":
    main()
