"""A look at a running program, as a view shows it: its groups and workers, and what goes between groups.

    control endpoint ── status, metrics ──▶ Observer ── look() ──▶ Look ──▶ terminal.py
                                                                    └─────▶ watched_run.py ──▶ pages

Rates are those since the observer's look before. Nothing is gathered between two looks.
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
"""The state of a worker → how a terminal shows it, as rich and textual name styles."""

_MOST_SILENT = 5
"""How many of the workers that have not answered are named."""


@dataclass(frozen=True)
class WorkerRow:
    """A worker, as it is now.

    Attributes:
        state: `running`, or `restarting, again in 12 s`.
        cause: Why its last attempt has ended.
        usage: What its process uses; None where that is not known, or it is a thread of the launcher's.
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
        """The state without what is said of it: `restarting`."""
        return self.state.partition(",")[0]

    @property
    def has_failed(self) -> bool:
        return self.state in ("failed", "lost")

    @property
    def n_restarts(self) -> int:
        return max(0, self.attempt - 1)


@dataclass(frozen=True)
class Look:
    """A program at a moment.

    Attributes:
        workers: In the order of the program, those of a group beside each other.
        metrics: Since the look before; None: they cannot be had where the program runs.
    """

    workers: tuple[WorkerRow, ...]
    metrics: Metrics | None

    @classmethod
    def of(cls, status: Sequence[Mapping[str, Any]], metrics: Metrics | None) -> Look:
        """Return what rows of `Running.status()`, as plain data, and numbers show."""
        numbers = {} if metrics is None else {each.worker: each for each in metrics.workers}
        rows = []
        for worker in status:
            known = numbers.get(worker["worker"])
            usage = None if known is None else known.process
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
        """The workers of each label."""
        groups: dict[str, list[WorkerRow]] = {}
        for worker in self.workers:
            groups.setdefault(worker.group, []).append(worker)
        return groups

    @cached_property
    def flows(self) -> list[EdgeStats]:
        """The edges from group to group, by method, the most calls first: callers and servers are labels."""
        if self.metrics is None:
            return []
        return flows_of(self.metrics, {worker.name: worker.group for worker in self.workers})


class Observer:
    """An observer of a program, by a client of its control endpoint. For one thread at a time.

    Args:
        within_s: How long workers may take to answer; one that has not is shown as it was.

    Attributes:
        total: The numbers since the program began, as they were seen last.
    """

    def __init__(self, client: Any, within_s: float) -> None:
        self._client = client
        self._within_s = within_s
        self.total: Metrics | None = None

    def look(self) -> Look:
        """Look at the program now.

        Raises:
            CourierError: it has ended, or does not answer.
        """
        return Look.of(self._client.status(), self.numbers())

    def numbers(self) -> Metrics | None:
        """Return the numbers since the look before; None if they cannot be had where the program runs.

        Raises as `look`.
        """
        try:
            metrics: Metrics | None = self._client.metrics(self._within_s)
        except LaunchError:  # of a program that was left on Kubernetes
            metrics = None
        before = self.total
        self.total = metrics
        if metrics is not None and before is not None and metrics.uptime_s > before.uptime_s:
            metrics = metrics.since(before)
        return metrics


def flows_of(metrics: Metrics, labels: Mapping[str, str]) -> list[EdgeStats]:
    """Join the edges between those that have one label, by method, the most calls first.

    Args:
        labels: Worker → what it counts as; itself where it is not in there.
    """
    rows: dict[tuple[str, str, str], list[EdgeStats]] = {}
    for edge in metrics.edges:
        ends = labels.get(edge.caller, edge.caller), labels.get(edge.server, edge.server)
        rows.setdefault((*ends, edge.method), []).append(edge)
    flows = [joined(each, *place, metrics.period_s) for place, each in rows.items()]
    return sorted(flows, key=lambda flow: (-flow.calls, flow.caller, flow.server, flow.method))


def joined(
    edges: Sequence[EdgeStats], caller: str, server: str, method: str, period_s: float
) -> EdgeStats:
    """Join several edges into one with these ends and this method."""
    total = edges[0] if len(edges) == 1 else Edges(tuple(edges), (), period_s).total()
    return replace(total, caller=caller, server=server, method=method)


def summary(look: Look, flows: Sequence[EdgeStats]) -> str:
    """Say in a line how a program is: `33 running · up 12.3 s · 515 calls/s`."""
    parts = [counted(look.workers)]
    if look.metrics is not None:
        parts.append(f"up {seconds(look.metrics.uptime_s)}")
        parts.append(f"{sum(flow.calls_per_s for flow in flows):,.0f} calls/s")
        if silent := look.metrics.silent:
            more = ", …" if len(silent) > _MOST_SILENT else ""
            parts.append(f"no answer from {', '.join(silent[:_MOST_SILENT])}{more}")
    return " · ".join(parts)


def titled(label: str, workers: Sequence[WorkerRow]) -> str:
    """Name a group: `actor`, or `actor ×32`."""
    return f"{label} ×{len(workers)}" if len(workers) > 1 else label


def usage_cells(workers: Sequence[WorkerRow]) -> list[str]:
    """Return the CPU, memory and threads that workers use together; dashes where none of it is known."""
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
    """Leave out of a worker's stacks the threads that run only launchpad and Python's own library."""
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
