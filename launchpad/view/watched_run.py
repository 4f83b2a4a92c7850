"""WatchedRun: a run for the browser's pages. It is observed while it runs, and later read from its files.

    control endpoint ── status, 4 times a second ──▶ a thread ─┐
                     ── metrics, once a second   ──▶ a thread ─┴─▶ WatchedRun ◀── pages
    log directory    ── history.json, logs       ──────────────────────┘

Looking costs CPU time. So looks take at most a twentieth of one CPU's time: if a look is slow, the next one
comes later.
"""

from __future__ import annotations

import contextlib
import functools
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from launchpad.courier import CourierError
from launchpad.errors import LaunchpadError
from launchpad.launch.logs.log_files import LogFiles, last_lines
from launchpad.launch.rundir import history as run_history
from launchpad.launch.rundir.history import AttemptRecord, RunHistory
from launchpad.launch.rundir.record import RunRecord
from launchpad.telemetry.edge_stats import EdgeStats
from launchpad.telemetry.program_metrics import Metrics
from launchpad.telemetry.trace import Trace
from launchpad.view.looks import Look, Observer, flows_of

_STATUS_S = 0.25
_METRICS_S = 1.0
_SHARE = 0.05
"""The share of one CPU's time that looks may take."""

_KEPT_S = 3600
_SAMPLES = 360
_AGAIN_S = 1.0
_SILENT_S = 30.0
"""A run that doesn't answer is asked again after `_AGAIN_S` seconds. If the run is on a cluster, it counts as
ended after `_SILENT_S` seconds without an answer.
"""

_REMOTE_LOG_S = 5.0
"""Seconds between fetches of a worker's log from a cluster, while a page shows it."""

_WITHIN_S = 2.0
"""Seconds that workers may take to answer."""

_TRACED_S = 30.0
"""Seconds that a program may take, after the recording, to answer."""

Connect = Callable[[RunRecord], AbstractContextManager[Any]]


@dataclass(frozen=True, slots=True)
class Sample:
    """A point of a program's or a worker's charts, about the time since the previous sample.

    Attributes:
        at: The time, in seconds since 1970.
        calls_per_s, errors_per_s: The rates of calls and errors. For a worker, of the calls that it made.
        cpu_percent, memory_bytes: The CPU time and memory that are used. None if these are unknown, or if the
            worker shares the launcher's process.
        gpu_percent: The average over all workers that have GPUs. None if no worker has GPUs.
        gpu_memory_bytes: The GPU memory that a worker uses. None for a program, because several workers may
            report the same GPU.
    """

    at: float
    calls_per_s: float
    errors_per_s: float
    cpu_percent: float | None
    memory_bytes: int | None
    gpu_percent: float | None = None
    gpu_memory_bytes: int | None = None


@dataclass
class Samples:
    """The samples of the last hour: about one a second for the program, one every ten seconds for workers."""

    program: deque[Sample] = field(default_factory=lambda: deque(maxlen=_KEPT_S))
    workers: dict[str, deque[Sample]] = field(default_factory=dict)
    _workers_at: float = 0.0
    _counted: dict[str, tuple[int, int]] = field(default_factory=dict)
    """Maps each worker to its calls and errors from the program's beginning until the last sample."""

    def add(self, look: Look, flows: Sequence[EdgeStats], total: Metrics) -> None:
        """Add samples from a look, from the `flows` between groups, and from the `total` metrics so far."""
        now = time.time()
        metrics = look.metrics
        if metrics is None:
            return
        usages = [worker.usage for worker in look.workers if worker.usage is not None]
        # If workers are threads of one process, each of them reports this process. Count it only once.
        if not usages:
            processes = [w.process for w in metrics.workers if w.process is not None]
            usages = processes[:1]
        gpus = [usage.gpu_percent for usage in usages if usage.gpu_percent is not None]
        self.program.append(
            Sample(
                now,
                sum(flow.calls_per_s for flow in flows),
                sum(flow.errors for flow in flows) / metrics.period_s,
                sum(usage.cpu_percent for usage in usages),
                sum(usage.memory_bytes for usage in usages),
                sum(gpus) / len(gpus) if gpus else None,
            )
        )
        if now - self._workers_at >= _KEPT_S / _SAMPLES:
            self._add_workers(look, total, now)

    def _add_workers(self, look: Look, total: Metrics, now: float) -> None:
        period_s = min(now - self._workers_at, total.uptime_s)
        self._workers_at = now
        calls_and_errors: dict[str, tuple[int, int]] = {}
        for edge in total.edges:
            calls, errors = calls_and_errors.get(edge.caller, (0, 0))
            calls_and_errors[edge.caller] = calls + edge.calls, errors + edge.errors
        before = self._counted
        self._counted = calls_and_errors
        for worker in look.workers:
            counts = calls_and_errors.get(worker.name, (0, 0)), before.get(worker.name, (0, 0))
            calls_per_s, errors_per_s = (
                (n - m) / max(period_s, 1e-3) for n, m in zip(*counts, strict=True)
            )
            use = worker.usage
            samples = self.workers.setdefault(worker.name, deque(maxlen=_SAMPLES))
            if use is None:
                samples.append(Sample(now, calls_per_s, errors_per_s, None, None))
            else:
                numbers = use.cpu_percent, use.memory_bytes, use.gpu_percent, use.gpu_memory_bytes
                samples.append(Sample(now, calls_per_s, errors_per_s, *numbers))


class WatchedRun:
    """A run, for all pages that show it. Methods may be called from any thread, and may wait for the run.

    Args:
        record: The record of the run.
        connect: A function that connects to the run's control endpoint, as `launchpad.cli.runs.connected`
            does.
        may_control: True if pages may stop the run, and restart its workers.

    Attributes:
        version: A number that grows whenever there is something new.
        states_version: A number that grows whenever the state of a worker changes.
        look: The last look. None before the first look.
        total: The metrics since the run began.
        flows: The calls between groups since the previous look, by method, the most calls first.
        total_flows: The calls between groups since the run began, in the same form.
        has_ended: True if the run has ended, or can no longer be reached.
        why_unseen: The reason, for the user, why the run could not be observed.
        samples: The samples of the last hour.
    """

    def __init__(self, record: RunRecord, connect: Connect, *, may_control: bool = False) -> None:
        self.record = record
        self.may_control = may_control
        self.version = 0
        self.states_version = 0
        self.has_ended = False
        self.why_unseen = ""
        self.look: Look | None = None
        self.total: Metrics | None = None
        self.flows: list[EdgeStats] = []
        self.total_flows: list[EdgeStats] = []
        self.samples = Samples()
        self._connect = connect
        self._client: Any = None
        self._rows: Sequence[Mapping[str, Any]] = ()
        self._is_closed = threading.Event()
        self._connected = threading.Event()
        # Both threads replace `look`. Without the lock, one of them could undo a replacement of the other.
        self._lock = threading.Lock()
        self._threads: list[threading.Thread] = []

    def start(self) -> None:
        """Start looking at the run, unless it has ended."""
        if not self.is_remote and not self.record.is_running:
            self._end("")
            return
        for watch in (self._watch_states, self._watch_numbers):
            thread = threading.Thread(target=watch, name="launchpad-view", daemon=True)
            self._threads.append(thread)
            thread.start()

    def close(self) -> None:
        """Stop looking."""
        self._is_closed.set()

    @property
    def is_remote(self) -> bool:
        """True if the run's files are not on this machine."""
        return bool(self.record.host)

    def history(self) -> RunHistory:
        """Return the run's attempts and failures so far."""
        if not self.has_ended:
            with contextlib.suppress(CourierError, LaunchpadError, OSError):
                history: RunHistory = self.client().history()
                return history
        last_history = None if self.is_remote else run_history.read(Path(self.record.logs))
        return last_history or RunHistory(self.record.program)

    def stacks(self, worker: str) -> str:
        """Return the current stacks of a worker's threads.

        Raises:
            CourierError, LaunchpadError: the run does not answer.
        """
        return str(self.client().stacks([worker])[worker])

    def trace(self, seconds: float) -> Trace:
        """Record what the workers do from now on.

        Raises:
            CourierError, LaunchpadError: the run does not answer, or it is on a cluster.
        """
        client = self.client()
        if self.is_remote:
            raise LaunchpadError("a program that was left on a cluster cannot be recorded yet")
        recording: Trace = client.with_options(timeout_s=seconds + _TRACED_S).trace(seconds)
        return recording

    def stop(self) -> None:
        """Ask the program to stop, as one Ctrl-C does.

        Raises:
            CourierError, LaunchpadError: the run does not answer.
        """
        self._may_control().stop(False)

    def restart(self, worker: str) -> None:
        """Ask the program to restart a worker.

        Raises:
            CourierError, LaunchpadError: the run does not answer.
        """
        self._may_control().restart(worker)

    def log_lines(self, worker: str, text: str, count: int) -> list[str]:
        """Return the last lines that a worker printed, over all attempts, that contain a text.

        Raises:
            CourierError, LaunchpadError: the lines are on a cluster, which does not answer.
        """
        files = LogFiles(Path(self.record.logs))
        if self.is_remote:
            lines: Iterable[str] = self.client().logs(worker, 0).splitlines()
        elif text:
            lines = files.lines(worker)
        else:
            attempts = (files.path(worker, n) for n in files.attempts(worker))
            lines = (line for log in attempts for line in last_lines(log, count))
        return list(deque((line for line in lines if text in line), count))

    def log_version(self, worker: str) -> object:
        """Return a value that changes whenever a worker has printed something."""
        files = LogFiles(Path(self.record.logs))
        if self.is_remote:
            return time.monotonic() // _REMOTE_LOG_S
        with contextlib.suppress(OSError, IndexError):
            last = files.attempts(worker)[-1]
            status = files.path(worker, last).stat()
            return last, status.st_ino, status.st_size
        return None

    def client(self) -> Any:
        """Return a client of the run's control endpoint.

        Raises:
            LaunchpadError: the run has ended, or cannot be reached.
        """
        if not self._connected.wait(_WITHIN_S) or self._client is None:
            raise LaunchpadError(self.why_unseen or f"{self.record.run_id} has ended")
        return self._client

    def _may_control(self) -> Any:
        assert self.may_control, "no page has a handler for that without --control"
        return self.client()

    def _watch_states(self) -> None:
        """Connect to the run, and watch the states of its workers. The first thread runs this."""
        seen_at = time.monotonic()
        while not self._is_closed.is_set():
            try:
                with self._connect(self.record) as client:
                    # Set the client first, because threads that wait for `_connected` use it at once.
                    self._client = client
                    self._connected.set()
                    while not self._is_closed.is_set():
                        self._look_and_wait(self._see_states, _STATUS_S)
                        seen_at = time.monotonic()
            except Exception as error:
                # Catch all errors, because the possible errors depend on the cluster.
                self.why_unseen = str(error)
            is_silent = self.is_remote and time.monotonic() > seen_at + _SILENT_S
            if is_silent or not (self.is_remote or self.record.is_running):
                self._end(self.why_unseen)
                return
            self._is_closed.wait(_AGAIN_S)

    def _end(self, why_unseen: str) -> None:
        """Record that the run has ended, and read its last state from its files."""
        # Set this first, so that `history` reads the run's files instead of calling the run.
        self.has_ended = True
        self.why_unseen = why_unseen
        self._connected.set()
        history = self.history()
        last = {attempt.worker: attempt for attempt in history.attempts}
        with self._lock:
            self.flows = []
            edges = history.edges
            if edges.rows:
                up_s = edges.period_s
                run_id = self.record.run_id
                self.total = Metrics(self.record.program, run_id, up_s, up_s, (), edges)
                self.total_flows = flows_of(self.total, self.record.workers)
            if self.look is None or last:
                rows = [
                    self._row(worker, label, last.get(worker))
                    for worker, label in self.record.workers.items()
                ]
                self.look = Look.of(rows, None)
            self.version += 1
            self.states_version += 1

    def _row(self, worker: str, label: str, last: AttemptRecord | None) -> Mapping[str, Any]:
        """Return a row as in `Running.status()` for a worker that has ended."""
        attempt = 0 if last is None else last.attempt
        outcome = None if last is None else last.outcome
        return {
            "worker": worker,
            "label": label,
            "state": "ended" if outcome is None else outcome.kind,
            "next_start": "",
            "attempt": attempt,
            "cause": "" if outcome is None else outcome.cause,
            "log_path": str(LogFiles(Path(self.record.logs)).path(worker, max(1, attempt))),
        }

    def _watch_numbers(self) -> None:
        self._connected.wait()
        while not self._is_closed.is_set() and not self.has_ended:
            observer = Observer(self._client, _WITHIN_S)
            # The other thread handles errors of the connection.
            with contextlib.suppress(Exception):
                while not self._is_closed.is_set() and not self.has_ended:
                    self._look_and_wait(functools.partial(self._see_numbers, observer), _METRICS_S)
            self._is_closed.wait(_AGAIN_S)

    def _look_and_wait(self, see: Callable[[], None], every_s: float) -> None:
        """Look once, and wait until it is time for the next look."""
        began_cpu_s = time.thread_time()
        began_s = time.monotonic()
        see()
        cpu_s = time.thread_time() - began_cpu_s
        took_s = time.monotonic() - began_s
        self._is_closed.wait(max(every_s - took_s, cpu_s / _SHARE, 0.05))

    def _see_states(self) -> None:
        rows = self.client().status()
        with self._lock:
            last_look = self.look
            look = Look.of(rows, None if last_look is None else last_look.metrics)
            if last_look is not None and look.workers == last_look.workers:
                return
            self._rows = rows
            self.look = look
            self.version += 1
            self.states_version += 1

    def _see_numbers(self, observer: Observer) -> None:
        numbers = observer.numbers()
        # Without numbers, this run never has metrics, so there is nothing to watch.
        if numbers is None:
            self._is_closed.wait()
            return
        labels = {worker.worker: worker.label for worker in numbers.workers}
        flows = flows_of(numbers, labels)
        total_flows = flows if observer.total is None else flows_of(observer.total, labels)
        with self._lock:
            self.total = observer.total
            self.flows = flows
            self.total_flows = total_flows
            # If this thread is the first to see the run, there is no look yet that numbers could be added to.
            if self.look is not None:
                self.look = Look.of(self._rows, numbers)
                self.samples.add(self.look, flows, observer.total or numbers)
            self.version += 1
