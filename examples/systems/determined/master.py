"""The master: it gives slots to trials, and logs the calls of slots. Its next attempt makes them again."""

import pickle
import sqlite3
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import launchpad as lp
from examples.systems.determined.algorithm import Random


@dataclass(eq=False)
class Trial:
    """A trial, its metrics by step, its last checkpoint, its last run and, while that goes on, its slots."""

    name: str
    experiment: Random
    number: int
    hparams: dict[str, Any]
    metrics: list[float] = field(default_factory=list)
    checkpoint: bytes = b""
    run: int = 0
    slots: Mapping[str, int] = field(default_factory=dict)
    is_leaving: bool = False
    is_closed: bool = False


class Event(NamedTuple):
    """A trial `begins` a run, `goes on` after a report, is `preempted` or `closed`; or its run is `lost`."""

    kind: str
    trial: Trial
    step: int
    slots: Mapping[str, int]


@lp.one_at_a_time
class Master:
    """The master. `dies_at` has the number of events at the death of an attempt."""

    def __init__(self, experiments: Sequence[Random], dies_at: Mapping[int, int]) -> None:
        self._dies_at = dies_at.get(lp.current().attempt)
        self._events: list[Event] = []
        self._trials: list[Trial] = []
        for experiment in experiments:
            for i, hparams in enumerate(experiment.points()):
                self._trials.append(Trial(f"{experiment.name}/{i}", experiment, i, hparams))
        # By slot: its attempt, and the trial that it has.
        self._seats: dict[str, tuple[int, Trial | None]] = {}
        self._log: sqlite3.Connection | None = None
        log = sqlite3.connect(lp.current().state_dir / "log.sqlite", isolation_level=None)
        log.execute("PRAGMA synchronous = OFF")  # a kill loses no commit, but a power cut may
        log.execute("CREATE TABLE IF NOT EXISTS call (method, arguments)")
        for method, arguments in log.execute("SELECT * FROM call").fetchall():
            getattr(self, method)(*pickle.loads(arguments))
        self._log = log

    @lp.idempotent
    def work(self, slot: str, attempt: int, done: int) -> Trial | None:
        """Return a trial for a slot that has done with this run, and all before; None: not yet."""
        last, trial = self._seats.get(slot, (0, None))
        if last < attempt or (trial and trial.run <= done):
            self._seats[slot] = attempt, None
            if trial and trial.slots:
                self._note("lost", trial)
            self._commit("work", slot, attempt, done)
        last, trial = self._seats[slot]
        return trial if last == attempt else None

    @lp.idempotent
    def report(self, slot: str, run: int, step: int, metric: float, checkpoint: bytes) -> bool:
        """Take the report of the trial on a slot. Return True if the run goes on."""
        _, trial = self._seats[slot]
        if not trial or trial.run != run or not trial.slots:
            return False
        if step > len(trial.metrics):  # else it comes again, as its answer was lost
            trial.metrics.append(metric)
            trial.checkpoint = checkpoint
            curves = [each.metrics for each in self._trials if each.experiment is trial.experiment]
            trial.is_closed = not trial.experiment.goes_on(trial.number, curves)
            kind = "preempted" if trial.is_leaving else "goes on"
            self._note("closed" if trial.is_closed else kind, trial)
            self._commit("report", slot, run, step, metric, checkpoint)
        return bool(trial.slots)

    @lp.idempotent
    def events(self) -> list[Event] | None:
        """Return all events in order; None: there will be more."""
        return self._events if all(trial.is_closed for trial in self._trials) else None

    def _note(self, kind: str, trial: Trial) -> None:
        self._events.append(Event(kind, trial, len(trial.metrics), trial.slots))
        if kind not in ("begins", "goes on"):
            trial.slots = {}

    def _commit(self, method: str, *arguments: object) -> None:
        """Schedule. Then log the call before its answer leaves, unless it comes from the log."""
        self._schedule()
        if self._log:
            self._log.execute("INSERT INTO call VALUES (?, ?)", (method, pickle.dumps(arguments)))
            if self._dies_at and len(self._events) >= self._dies_at:
                lp.testing.crash()

    def _schedule(self) -> None:
        """Give room by priority, then to trials that have slots, then first come. Others wait, or leave."""
        held = {trial for _, trial in self._seats.values() if trial}
        free = {slot: attempt for slot, (attempt, trial) in self._seats.items() if not trial}
        farthest = max(len(trial.metrics) for trial in self._trials)
        room = len(self._seats)
        for trial in sorted(self._trials, key=lambda t: (t.experiment.priority, t not in held)):
            n_slots = trial.experiment.slots
            if trial.is_closed or trial.experiment.after > farthest:
                continue
            room -= n_slots
            trial.is_leaving = room < 0
            # A trial gets all its slots at once, when its last ones are all free again.
            if trial not in held and room >= 0 and n_slots <= len(free):
                trial.run = len(self._events) + 1
                trial.slots = {slot: free.pop(slot) for slot in list(free)[:n_slots]}
                self._seats |= {slot: (attempt, trial) for slot, attempt in trial.slots.items()}
                self._note("begins", trial)
