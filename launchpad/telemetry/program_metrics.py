"""A snapshot of a whole program's metrics, and the difference between two snapshots.

    running.metrics()                ──▶ Metrics     since the program began
    running.metrics().since(before)  ──▶ Metrics     the same, since an earlier snapshot

The caller keeps the earlier snapshot. The program keeps nothing for it.
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
    """A snapshot of one worker.

    Example:
        silent = [each.worker for each in running.metrics().workers if each.is_silent]

    Attributes:
        worker: Its name: `actor-3`.
        label: Its group: `actor`.
        state: As in `WorkerStatus`.
        attempt: How often it was started.
        uptime_s: Seconds since its last attempt began; 0 if no attempt runs.
        is_silent: True if it runs but didn't answer in time. Its numbers are then the last known ones.
        process: The usage of its process. None if the worker doesn't run, isn't ready yet, or has never
            answered.
    """

    worker: str
    label: str
    state: str
    attempt: int
    uptime_s: float
    is_silent: bool
    process: ProcessUsage | None

    def since(self, earlier: WorkerMetrics | None) -> WorkerMetrics:
        """Return a copy with the usage of the worker's process since an earlier snapshot.

        If the process is new, its usage counts from its start.
        """
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
        """Return plain data, ready for JSON."""
        fields = asdict(self)
        if self.process is not None:
            fields["process"]["cpu_percent"] = self.process.cpu_percent
        return fields


@dataclass(frozen=True)
class Metrics:
    """A snapshot of a program's metrics: `running.metrics()`.

    Example:
        before = running.metrics()
        time.sleep(1.0)
        now = running.metrics().since(before)
        print(now.edges.total(server="learner").calls_per_s)
        for worker in now.workers:
            print(worker.worker, worker.process and worker.process.cpu_percent)

    Attributes:
        program, run_id: The program and the run that were measured.
        uptime_s: How long the program has run.
        period_s: The time that the counts cover: equal to `uptime_s`, or since an earlier snapshot.
        workers: The workers, in the order of their start.
        edges: The calls, by caller, server and method.
    """

    program: str
    run_id: str
    uptime_s: float
    period_s: float
    workers: tuple[WorkerMetrics, ...]
    edges: Edges

    @property
    def is_exact(self) -> bool:
        """True if `edges` counts every call: no worker was killed, and all answered."""
        return not self.edges.lacking

    @property
    def silent(self) -> tuple[str, ...]:
        """The workers that run but didn't answer in time."""
        return tuple(worker.worker for worker in self.workers if worker.is_silent)

    def since(self, earlier: Metrics) -> Metrics:
        """Return the counts, times and rates of the time since an earlier snapshot.

        States, memory, threads and calls in flight keep their current values.

        Raises:
            ValueError: The two snapshots are of different runs, or one of them was made by `since`.
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
        """Return plain data, ready for JSON."""
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
        """Return text in Prometheus' exposition format 0.0.4. docs/metrics.md has the names.

        Raises:
            ValueError: This snapshot was made by `since`. Counters in Prometheus count from the beginning.
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
        """Yield the labels and statistics of each edge, as a client would count them."""
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
    """Return a function that reads this number of a worker's process, or None if it is unknown."""
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
