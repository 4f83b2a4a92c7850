"""The numbers of a whole program at a moment, and those between two moments.

    running.metrics()                ──▶ Metrics     since the program began
    running.metrics().since(before)  ──▶ Metrics     the same, since an earlier look

The one that looks keeps what it saw before; the program keeps nothing for it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import asdict, replace
from typing import Any

from launchpad.courier.light_dataclass import dataclass
from launchpad.courier.telemetry import prometheus
from launchpad.courier.telemetry.call_stats import MethodStats
from launchpad.telemetry.edge_stats import Edges
from launchpad.telemetry.process_usage import ProcessUsage


@dataclass(frozen=True)
class WorkerMetrics:
    """A worker at a moment.

    Example:
        silent = [each.worker for each in running.metrics().workers if each.is_silent]

    Attributes:
        worker: Its name: `actor-3`.
        label: Its group: `actor`.
        state: As in `WorkerStatus`.
        attempt: How often it was started.
        uptime_s: Since its last attempt began; 0 where none runs.
        is_silent: Whether it runs and has not answered in time: its numbers are those that were known.
        process: What its process uses; None: it does not run, is not ready yet, or has never answered.
    """

    worker: str
    label: str
    state: str
    attempt: int
    uptime_s: float
    is_silent: bool
    process: ProcessUsage | None

    def since(self, earlier: WorkerMetrics | None) -> WorkerMetrics:
        """The same, with what its process has used since an earlier look; a new one, since its start."""
        if self.process is None or earlier is None or earlier.process is None:
            return self
        if not self.process.is_shared and self.attempt != earlier.attempt:
            return self
        return WorkerMetrics(
            self.worker,
            self.label,
            self.state,
            self.attempt,
            self.uptime_s,
            self.is_silent,
            self.process.since(earlier.process),
        )

    def to_dict(self) -> dict[str, Any]:
        """Plain data, ready for JSON."""
        fields = asdict(self)
        if self.process is not None:
            fields["process"]["cpu_percent"] = self.process.cpu_percent
        return fields


@dataclass(frozen=True)
class Metrics:
    """The numbers of a program at a moment: `running.metrics()`.

    Example:
        before = running.metrics()
        time.sleep(1.0)
        now = running.metrics().since(before)
        print(now.edges.total(server="learner").calls_per_s)
        for worker in now.workers:
            print(worker.worker, worker.process and worker.process.cpu_percent)

    Attributes:
        program, run_id: Whose they are.
        uptime_s: How long the program has run.
        period_s: How long it took for what is counted: as `uptime_s`, or since an earlier look.
        workers: In the order of their start.
        edges: Calls by caller, server and method.
    """

    program: str
    run_id: str
    uptime_s: float
    period_s: float
    workers: tuple[WorkerMetrics, ...]
    edges: Edges

    @property
    def is_exact(self) -> bool:
        """Whether no call is missing in `edges`: no worker was killed, and all have answered."""
        return not self.edges.lacking

    @property
    def silent(self) -> tuple[str, ...]:
        """The workers that run and have not answered in time."""
        return tuple(worker.worker for worker in self.workers if worker.is_silent)

    def since(self, earlier: Metrics) -> Metrics:
        """What has come since an earlier look: counts, times and rates of what was between the two.

        States, memory, threads and calls in flight are as they are now.

        Raises:
            ValueError: that is of another run, or was itself made by `since`.
        """
        if earlier.run_id != self.run_id or not (earlier._is_whole and self._is_whole):
            raise ValueError(
                "Metrics.since() compares two looks at one run, as running.metrics() returns them; here are"
                f" {self.period_s:.3g} s of {self.run_id} and {earlier.period_s:.3g} s of {earlier.run_id}"
            )
        before = {worker.worker: worker for worker in earlier.workers}
        return replace(
            self,
            period_s=self.uptime_s - earlier.uptime_s,
            workers=tuple(worker.since(before.get(worker.worker)) for worker in self.workers),
            edges=self.edges.since(earlier.edges),
        )

    def to_dict(self) -> dict[str, Any]:
        """Plain data, ready for JSON."""
        return {
            "program": self.program,
            "run_id": self.run_id,
            "uptime_s": self.uptime_s,
            "period_s": self.period_s,
            "is_exact": self.is_exact,
            "lacking": list(self.edges.lacking),
            "silent": list(self.silent),
            "workers": [worker.to_dict() for worker in self.workers],
            "edges": self.edges.to_dicts(),
        }

    def to_prometheus(self) -> str:
        """Text in Prometheus' exposition format 0.0.4; docs/metrics.md has the names.

        Raises:
            ValueError: these were made by `since`; a counter of Prometheus counts from the beginning.
        """
        if not self._is_whole:
            raise ValueError("to_prometheus() is of running.metrics() itself, not of its since()")
        owner = {"program": self.program, "run": self.run_id}
        lines = prometheus.family(
            "launchpad_uptime_seconds",
            "gauge",
            "Since the program began.",
            [(owner, self.uptime_s)],
        )
        for name, kind, help_text, value_of in _OF_A_WORKER:
            values = ((worker, value_of(worker)) for worker in self.workers)
            samples = [
                ({**owner, "worker": worker.worker, "group": worker.label}, value)
                for worker, value in values
                if value is not None
            ]
            lines += prometheus.family(f"launchpad_worker_{name}", kind, help_text, samples)
        states = [
            (
                {**owner, "worker": worker.worker, "group": worker.label, "state": worker.state},
                1.0,
            )
            for worker in self.workers
        ]
        lines += prometheus.family(
            "launchpad_worker_state", "gauge", "Always 1; its state is a label.", states
        )
        lines += prometheus.of_calls("launchpad_edge", list(self._series(owner)))
        return "\n".join(lines) + "\n"

    def _series(self, owner: prometheus.Labels) -> Iterator[tuple[prometheus.Labels, MethodStats]]:
        """Edges as a client would have counted them."""
        for row in self.edges:
            labels = {"caller": row.caller, "server": row.server, "method": row.method}
            yield (
                {**owner, **labels},
                MethodStats(
                    calls=row.calls,
                    errors=row.errors,
                    in_flight=row.in_flight,
                    bytes_in=row.bytes_received,
                    bytes_out=row.bytes_sent,
                    total_s=row.waiting_s,
                    buckets=row.buckets,
                    items=row.items,
                ),
            )

    @property
    def _is_whole(self) -> bool:
        return self.period_s == self.uptime_s


def _used(name: str) -> Callable[[WorkerMetrics], float | None]:
    """A number of a worker's process; None where there is none."""
    return lambda worker: getattr(worker.process, name, None)


_OF_A_WORKER: tuple[tuple[str, str, str, Callable[[WorkerMetrics], float | None]], ...] = (
    ("starts_total", "counter", "How often it was started.", lambda w: w.attempt),
    ("uptime_seconds", "gauge", "Since its last attempt began.", lambda w: w.uptime_s),
    ("silent", "gauge", "1: it runs and has not answered in time.", lambda w: int(w.is_silent)),
    ("cpu_seconds_total", "counter", "CPU time of its process.", _used("cpu_s")),
    ("memory_bytes", "gauge", "What its process has in memory.", _used("memory_bytes")),
    ("threads", "gauge", "Threads of its process.", _used("threads")),
    ("gpu_memory_bytes", "gauge", "Used memory of its GPUs.", _used("gpu_memory_bytes")),
    ("gpu_percent", "gauge", "How busy its GPUs are, on average.", _used("gpu_percent")),
)
