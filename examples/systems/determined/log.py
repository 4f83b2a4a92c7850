"""The master's log: everything that it knows, in a file of SQLite, which outlives the master."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import launchpad as lp
from examples.systems.determined.algorithm import Hyperparameters

# With these settings a commit is in a file, though perhaps not on the disk: a kill loses none, a power cut
# may.
SCHEMA = """
PRAGMA journal_mode = WAL;
PRAGMA synchronous = NORMAL;
PRAGMA wal_autocheckpoint = 100;
CREATE TABLE IF NOT EXISTS master (attempt INTEGER, is_closed INTEGER);
CREATE TABLE IF NOT EXISTS experiment (n INTEGER PRIMARY KEY, name TEXT UNIQUE, config TEXT);
CREATE TABLE IF NOT EXISTS trial (n INTEGER PRIMARY KEY, experiment TEXT, number INTEGER,
    hyperparameters TEXT, parent INTEGER, slots INTEGER, pool TEXT, priority INTEGER,
    target INTEGER, epochs INTEGER, parameters BLOB, is_closed INTEGER DEFAULT 0);
CREATE TABLE IF NOT EXISTS report (n INTEGER PRIMARY KEY, trial INTEGER, epochs INTEGER, loss REAL,
    target INTEGER, UNIQUE (trial, epochs));
CREATE TABLE IF NOT EXISTS allocation (n INTEGER PRIMARY KEY, trial INTEGER, slots TEXT, outcome TEXT);
CREATE TABLE IF NOT EXISTS slot (name TEXT PRIMARY KEY, pool TEXT,
    allocation INTEGER); -- 0: it has none, and NULL: it asks for one
"""


class TrialRow(NamedTuple):
    """A trial as the log has it; see `algorithm.Start`.

    Attributes:
        n: Its number among the trials of all experiments; `number` is that in its own experiment.
        epochs: How many epochs its checkpoint has been trained for.
    """

    n: int
    experiment: str
    number: int
    hyperparameters: Hyperparameters
    parent: int | None
    slots: int
    epochs: int
    is_closed: bool


class Report(NamedTuple):
    """The loss of a trial after some epochs, and the searcher's answer: the next target, or 0."""

    trial: int
    epochs: int
    loss: float
    target: int


class Allocation(NamedTuple):
    """The slots that a trial had once, in the order of its ranks, and how that ended.

    Attributes:
        outcome: `closed`: the trial is done. `preempted`: it has saved, and left for a more urgent one.
            `lost`: a slot has failed. None: the trial runs.
    """

    n: int
    trial: int
    slots: list[str]
    outcome: str | None


class History(NamedTuple):
    """Everything in the log, in order, and the attempt of the master."""

    trials: list[TrialRow]
    reports: list[Report]
    allocations: list[Allocation]
    attempt: int


class Log:
    """A database. Only the attempt of the master that opened it last may write to it."""

    def __init__(self, file: Path, attempt: int) -> None:
        self._attempt = attempt
        self._is_closed = False
        self._database = sqlite3.connect(file, isolation_level=None, check_same_thread=False)
        self._database.executescript(SCHEMA)
        if not self("SELECT * FROM master"):
            self("INSERT INTO master VALUES (0, 0)")
        self("UPDATE master SET attempt = ?", self._attempt)

    def __call__(self, statement: str, *values: Any) -> list[Any]:
        """Run a statement, and return its rows. Raise Stopped if the log is closed."""
        if self._is_closed:
            raise lp.Stopped(f"attempt {self._attempt} of the master is over")
        return self._database.execute(statement, values).fetchall()

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """Commit everything that this block writes, or nothing if it raises.

        Raises:
            Stopped: Another attempt has opened the log. This one is a thread that should have been killed.
        """
        self("BEGIN IMMEDIATE")
        try:
            if self("SELECT attempt FROM master") != [(self._attempt,)]:
                raise lp.Stopped(f"attempt {self._attempt} of the master is over")
            yield
        except BaseException:
            self("ROLLBACK")
            raise
        self("COMMIT")

    def history(self) -> History:
        """Return everything in the log."""
        trials = self(
            "SELECT n, experiment, number, hyperparameters, parent, slots, epochs, is_closed FROM trial"
        )
        reports = self("SELECT trial, epochs, loss, target FROM report ORDER BY n")
        allocations = self("SELECT n, trial, slots, outcome FROM allocation ORDER BY n")
        return History(
            [
                TrialRow(
                    n,
                    experiment,
                    number,
                    json.loads(values),
                    parent,
                    slots,
                    epochs,
                    bool(is_closed),
                )
                for n, experiment, number, values, parent, slots, epochs, is_closed in trials
            ],
            [Report(*row) for row in reports],
            [
                Allocation(n, trial, json.loads(slots), outcome)
                for n, trial, slots, outcome in allocations
            ],
            self._attempt,
        )

    def close(self) -> None:
        """Close the log, as this attempt is over."""
        self._is_closed = True
        self._database.close()
