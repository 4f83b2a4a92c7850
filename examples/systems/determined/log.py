"""The master's log: all that it knows, in a file of SQLite. What is in it outlives the master."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import launchpad as lp
from examples.systems.determined.algorithm import Hyperparameters

# A commit is in a file then, though not yet on the disk: a kill loses none, a power cut may.
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
        n: Its number, of all experiments; `number` is that in its own.
        epochs: How many it has trained, as far as its checkpoint knows.
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
    """The loss of a trial after so many epochs, and what the searcher answered: the next target, or 0."""

    trial: int
    epochs: int
    loss: float
    target: int


class Allocation(NamedTuple):
    """Which slots a trial had once, in the order of its ranks, and how that ended.

    Attributes:
        outcome: `closed`: the trial is done; `preempted`: it has saved, for a more urgent one; `lost`: a slot
            has failed. None: it runs.
    """

    n: int
    trial: int
    slots: list[str]
    outcome: str | None


class History(NamedTuple):
    """All that is in the log, in order; and in which attempt the master is."""

    trials: list[TrialRow]
    reports: list[Report]
    allocations: list[Allocation]
    attempt: int


class Log:
    """A database that one attempt of the master writes: the last that has opened it."""

    def __init__(self, file: Path, attempt: int) -> None:
        self._attempt, self._is_closed = attempt, False
        self._database = sqlite3.connect(file, isolation_level=None, check_same_thread=False)
        self._database.executescript(SCHEMA)
        if not self("SELECT * FROM master"):
            self("INSERT INTO master VALUES (0, 0)")
        self("UPDATE master SET attempt = ?", self._attempt)

    def __call__(self, statement: str, *values: Any) -> list[Any]:
        """Run a statement; return what it has found. Stopped: the log is closed."""
        if self._is_closed:
            raise lp.Stopped(f"attempt {self._attempt} of the master is over")
        return self._database.execute(statement, values).fetchall()

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """All or nothing of what is written in this block.

        Raises:
            Stopped: another attempt has opened the log: this one, a thread that was to be killed, is over.
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
        """Return all of it."""
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
        """Close it, as this attempt is over."""
        self._is_closed = True
        self._database.close()
