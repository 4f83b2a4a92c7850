"""Look: a snapshot of a running program for a view, with its groups, workers and calls between groups.

    control endpoint ── status, metrics ──▶ Observer ── look() ──▶ Look ──▶ terminal.py
                                                                    └─────▶ watched_run.py ──▶ pages

Rates count from the observer's previous look. Nothing is collected between two looks.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from launchpad.courier.formatting import seconds, size
from launchpad.errors import LaunchError
from launchpad.launch.rundir.record import WorkerStatus
from launchpad.runtime.user_code import is_of_user
from launchpad.telemetry.edge_stats import Edges, EdgeStats
from launchpad.telemetry.process_usage import ProcessUsage
from launchpad.telemetry.program_metrics import Metrics

STATE_COLORS = {
    "running": "green",
    "succeeded": "green",
    "failed": "bold red",
    "lost": "bold red",
    "starting": "yellow",
    "stopping": "yellow",
    "restarting": "yellow",
}
"""Maps the state of a worker to its style in a terminal. The styles' names are those of rich and textual."""

_MOST_SILENT = 5
"""Of the workers that have not answered, at most this many are named."""


@dataclass(frozen=True)
class WorkerRow:
    """The current state of a worker.

    Attributes:
        state: The state, for example `running`, or `restarting, again in 12 s`.
        cause: The reason why the worker's last attempt ended.
        usage: The CPU and memory that the worker's process uses. None if it is unknown, or if the worker
            shares the process.
    """

    name: str
    group: str
    state: str
    attempt: int
    cause: str
    log_path: str
    usage: ProcessUsage | None

    @property
    def first_state(self) -> str:
        """The state without the details, for example `restarting`."""
        return self.state.partition(",")[0]

    @property
    def has_failed(self) -> bool:
        return self.state in ("failed", "lost")

    @property
    def n_restarts(self) -> int:
        return max(0, self.attempt - 1)


@dataclass(frozen=True)
class Look:
    """A snapshot of a program.

    Attributes:
        workers: The workers in the order of the program. Workers of a group are next to each other.
        metrics: The metrics since the previous look. None if they are not available where the program runs.
    """

    workers: tuple[WorkerRow, ...]
    metrics: Metrics | None

    @classmethod
    def of(cls, status: Sequence[Mapping[str, Any]], metrics: Metrics | None) -> Look:
        """Make a look from the rows of `Running.status()`, as plain data, and the metrics."""
        numbers = {} if metrics is None else {row.worker: row for row in metrics.workers}
        rows = []
        for worker in status:
            worker_metrics = numbers.get(worker["worker"])
            usage = None if worker_metrics is None else worker_metrics.process
            rows.append(
                WorkerRow(
                    name=worker["worker"],
                    group=worker["label"],
                    state=WorkerStatus(**worker).shown_state,
                    attempt=worker["attempt"],
                    cause=worker["cause"],
                    log_path=worker["log_path"],
                    usage=None if usage is None or usage.is_shared else usage,
                )
            )
        return cls(tuple(rows), metrics)

    @property
    def groups(self) -> dict[str, list[WorkerRow]]:
        """Maps the label of each group to its workers."""
        groups: dict[str, list[WorkerRow]] = {}
        for worker in self.workers:
            groups.setdefault(worker.group, []).append(worker)
        return groups

    @cached_property
    def flows(self) -> list[EdgeStats]:
        """The edges between groups, by method, the most calls first. Callers and servers are labels."""
        if self.metrics is None:
            return []
        return flows_of(self.metrics, {worker.name: worker.group for worker in self.workers})


class Observer:
    """An observer of a program through a client of its control endpoint. Not thread-safe.

    Args:
        within_s: Seconds that workers may take to answer. A worker that doesn't answer in time is shown as it
            was before.

    Attributes:
        total: The metrics since the program began, as last seen.
    """

    def __init__(self, client: Any, within_s: float) -> None:
        self._client = client
        self._within_s = within_s
        self.total: Metrics | None = None

    def look(self) -> Look:
        """Look at the program now.

        Raises:
            CourierError: the program has ended, or does not answer.
        """
        return Look.of(self._client.status(), self.numbers())

    def numbers(self) -> Metrics | None:
        """Return the metrics since the previous look. None if they are not available where the program runs.

        Raises:
            CourierError: the program has ended, or does not answer.
        """
        try:
            metrics: Metrics | None = self._client.metrics(self._within_s)
        except LaunchError:
            # The program is detached, on Kubernetes.
            metrics = None
        before = self.total
        self.total = metrics
        if metrics is not None and before is not None and metrics.uptime_s > before.uptime_s:
            metrics = metrics.since(before)
        return metrics


def flows_of(metrics: Metrics, labels: Mapping[str, str]) -> list[EdgeStats]:
    """Join edges that have the same labels at both ends, by method. Return them with the most calls first.

    Args:
        labels: Maps each worker to its label. A worker that is missing here is its own label.
    """
    rows: dict[tuple[str, str, str], list[EdgeStats]] = {}
    for edge in metrics.edges:
        ends = labels.get(edge.caller, edge.caller), labels.get(edge.server, edge.server)
        rows.setdefault((*ends, edge.method), []).append(edge)
    flows = [joined(edges, *place, metrics.period_s) for place, edges in rows.items()]
    return sorted(flows, key=lambda flow: (-flow.calls, flow.caller, flow.server, flow.method))


def joined(
    edges: Sequence[EdgeStats], caller: str, server: str, method: str, period_s: float
) -> EdgeStats:
    """Join several edges into one with these ends and this method."""
    total = edges[0] if len(edges) == 1 else Edges(tuple(edges), (), period_s).total()
    return replace(total, caller=caller, server=server, method=method)


def summary(look: Look, flows: Sequence[EdgeStats]) -> str:
    """Return one line about the state of a program: `33 running · up 12.3 s · 515 calls/s`."""
    parts = [counted(look.workers)]
    if look.metrics is not None:
        parts.append(f"up {seconds(look.metrics.uptime_s)}")
        parts.append(f"{sum(flow.calls_per_s for flow in flows):,.0f} calls/s")
        silent = look.metrics.silent
        if silent:
            more = ", …" if len(silent) > _MOST_SILENT else ""
            parts.append(f"no answer from {', '.join(silent[:_MOST_SILENT])}{more}")
    return " · ".join(parts)


def titled(label: str, workers: Sequence[WorkerRow]) -> str:
    """Return the title of a group: `actor`, or `actor ×32`."""
    return f"{label} ×{len(workers)}" if len(workers) > 1 else label


def usage_cells(workers: Sequence[WorkerRow]) -> list[str]:
    """Return the CPU, memory and threads that workers use together, or dashes if these are not known."""
    usages = [worker.usage for worker in workers if worker.usage is not None]
    if not usages:
        return ["–", "–", "–"]
    return [
        f"{sum(usage.cpu_percent for usage in usages):.0f} %",
        size(sum(usage.memory_bytes for usage in usages)),
        f"{sum(usage.threads for usage in usages)}",
    ]


def counted(workers: Sequence[WorkerRow]) -> str:
    """Count workers by their states: `33 running, 1 restarting`."""
    states = Counter(worker.first_state for worker in workers)
    return ", ".join(f"{n} {state}" for state, n in states.most_common())


def without_launchpad_frames(stacks: str) -> str:
    """Return a worker's stacks without the threads that run only launchpad and Python's own library."""
    blocks = [block for block in re.split(r"\n\n+", stacks) if block.strip()]
    users = []
    for block in blocks:
        files = re.findall(r'^  File "([^"]+)"', block, flags=re.M)
        if not files or any(map(is_of_user, files)):
            users.append(block)
    n_others = len(blocks) - len(users)
    if n_others:
        s = "" if n_others == 1 else "s"
        users.append(f"({n_others} thread{s} of launchpad's own; --all shows them)")
    return "\n\n".join(users)
