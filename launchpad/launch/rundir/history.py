"""The history of a run: the attempts of its workers, its failures, and the counts of its edges.

    supervisor ── attempts, failures ──▶ RunHistory ──▶ control endpoint     while it runs
                                                   └──▶ <log directory>/history.json, at its end

A run whose launcher was killed has no file.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import field
from pathlib import Path
from typing import Any

from launchpad import outcome
from launchpad.courier.light_dataclass import dataclass
from launchpad.outcome import Outcome
from launchpad.telemetry.edge_stats import Edges, EdgeStats

NAME = "history.json"
_KEPT_ATTEMPTS = 50
_KEPT_IN_ALL = 10_000
_KEPT_ANYWAY = 5
"""The number of last attempts that are kept: of each worker, of all workers together, and of each worker in a
program with very many workers."""

_KEPT_TRACEBACKS = 3
"""The number of last attempts of each worker whose tracebacks are kept."""

_KEPT_LINES = 40


@dataclass(frozen=True)
class AttemptRecord:
    """One attempt of a worker.

    Attributes:
        began, ready, ended: Times, in seconds since 1970; None for not yet, or never. (The supervisor's own
            records have times of `time.monotonic()`.)
        outcome: How the attempt ended; None while it runs.
    """

    worker: str
    attempt: int
    began: float
    ready: float | None = None
    ended: float | None = None
    outcome: Outcome | None = None

    def moved(self, by_s: float) -> AttemptRecord:
        """Return the record with its times moved to another clock."""
        return dataclasses.replace(
            self,
            began=self.began + by_s,
            ready=None if self.ready is None else self.ready + by_s,
            ended=None if self.ended is None else self.ended + by_s,
        )

    def shortened(self) -> AttemptRecord:
        """Return the record with only the last lines that the attempt printed."""
        if self.outcome is None or len(self.outcome.last_lines) <= _KEPT_LINES:
            return self
        lines = self.outcome.last_lines[-_KEPT_LINES:]
        return dataclasses.replace(
            self, outcome=dataclasses.replace(self.outcome, last_lines=lines)
        )

    def without(self, *names: str) -> AttemptRecord:
        """Return the record without these parts of its outcome: `last_lines` or `traceback`."""
        if self.outcome is None:
            return self
        empty: dict[str, Any] = {"last_lines": (), "traceback": ""}
        changes = {name: empty[name] for name in names if getattr(self.outcome, name)}
        if not changes:
            return self
        return dataclasses.replace(self, outcome=dataclasses.replace(self.outcome, **changes))


def kept(attempts: Sequence[AttemptRecord], n_workers: int) -> tuple[AttemptRecord, ...]:
    """Return what is kept of a worker's ended attempts when the next one begins.

    Thousands of workers that fail again and again must not fill the launcher's memory. Whatever an attempt
    printed is in its log, and so are the tracebacks that are dropped.
    """
    n_kept = max(_KEPT_ANYWAY, min(_KEPT_ATTEMPTS, _KEPT_IN_ALL // n_workers)) - 1
    last = attempts[-n_kept:]
    n_without = len(last) - (_KEPT_TRACEBACKS - 1)
    return tuple(
        record.without("last_lines", "traceback") if i < n_without else record.without("last_lines")
        for i, record in enumerate(last)
    )


@dataclass(frozen=True)
class RunHistory:
    """The history of a run so far.

    Attributes:
        attempts: The attempts by worker, the earliest first; the last 50 of each worker, and fewer if there
            are more than 200 workers. Only the last three of each worker have tracebacks.
        failures: The failure that ended the program, and the failures that came after it.
        ended: When the run ended, in seconds since 1970; None while it goes on.
        edges: What has gone over its edges, once the run has ended. Before that, call `running.edges()`.
    """

    program: str
    attempts: tuple[AttemptRecord, ...] = ()
    failures: tuple[Outcome, ...] = ()
    ended: float | None = None
    edges: Edges = field(default_factory=lambda: Edges(()))

    @property
    def first_cause(self) -> Outcome | None:
        """The failure that explains the others; None if nothing has failed."""
        return outcome.first_cause(list(self.failures)) if self.failures else None

    @property
    def consequences(self) -> tuple[Outcome, ...]:
        """The other failures."""
        return tuple(failure for failure in self.failures if failure is not self.first_cause)

    def of(self, worker: str) -> list[AttemptRecord]:
        """Return the attempts of one worker."""
        return [attempt for attempt in self.attempts if attempt.worker == worker]

    def to_dict(self) -> dict[str, Any]:
        """Return plain data, ready for JSON."""
        return dataclasses.asdict(self)

    @classmethod
    def from_dict(cls, plain: Mapping[str, Any]) -> RunHistory:
        """Make a history from the result of `to_dict`, even if that was stored as JSON."""
        attempts = (
            AttemptRecord(**{**attempt, "outcome": _outcome(attempt["outcome"])})
            for attempt in plain["attempts"]
        )
        failures = (Outcome(**_with_tuples(failure)) for failure in plain["failures"])
        edge_data = plain["edges"]
        rows = tuple(EdgeStats(**_with_tuples(row)) for row in edge_data["rows"])
        edges = Edges(rows, tuple(edge_data["lacking"]), edge_data["period_s"])
        return cls(plain["program"], tuple(attempts), tuple(failures), plain["ended"], edges)


def write(logs: Path, history: RunHistory) -> None:
    """Write the history beside the logs. If the disk is full, write nothing."""
    with contextlib.suppress(OSError):
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC | os.O_NOFOLLOW
        with open(os.open(logs / NAME, flags, 0o600), "w") as file:
            json.dump(history.to_dict(), file)


def read(logs: Path) -> RunHistory | None:
    """Read the history beside the logs; None if the file is missing or incomplete."""
    try:
        return RunHistory.from_dict(json.loads((logs / NAME).read_bytes()))
    except (OSError, ValueError, TypeError, KeyError):
        return None


def _outcome(plain: Mapping[str, Any] | None) -> Outcome | None:
    return None if plain is None else Outcome(**_with_tuples(plain))


def _with_tuples(plain: Mapping[str, Any]) -> dict[str, Any]:
    """Return the data with tuples instead of JSON's lists."""
    return {n: tuple(value) if isinstance(value, list) else value for n, value in plain.items()}
