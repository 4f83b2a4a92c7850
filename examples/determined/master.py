"""The master: gives trials to slots, asks the searchers how trials go on, and writes all of it down.

It is killed at any moment, and has nothing in its memory that is not made from the log: searchers are told
the reports again.

    slot ──free──▶ master ──work──▶ slot ──epoch_done──▶ … ──report──▶ … ──free──▶
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple

import numpy as np

import launchpad as lp
from examples._shared.digits import Array
from examples.determined.algorithm import Asha, Grid, Hyperparameters, Pbt, Random, Searcher, Start
from examples.determined.log import History, Log
from examples.determined.page import page, serve
from examples.determined.scheduler import Job, schedule

SEARCHERS: dict[str, type[Searcher]] = {"asha": Asha, "random": Random, "grid": Grid, "pbt": Pbt}


@dataclass(frozen=True)
class Experiment:
    """What a user submits.

    Attributes:
        searcher: One of `SEARCHERS`, with its options.
        slots: How many slots a trial has at once, on whichever agents: it trains with as many ranks.
        pool: Which slots: `cpu` or `gpu`.
        priority: The smaller the number, the more urgent.
    """

    name: str
    searcher: str
    options: dict[str, Any]
    slots: int = 1
    pool: str = "cpu"
    priority: int = 42

    def make_searcher(self) -> Searcher:
        return SEARCHERS[self.searcher](**self.options)


class Work(NamedTuple):
    """What a slot is to do: to be a rank of a trial, from the epochs of its checkpoint to the target."""

    allocation: int
    slots: list[str]
    trial: int
    number: int
    hyperparameters: Hyperparameters
    epochs: int
    target: int
    checkpoint: Array | None


class Master:
    """Serves slots and users.

    Args:
        dies_at: In which attempt it dies, at which number of reports: when that is in the log, and the
            slot does not know.
        port: Where its host shows the page of trials; 0: at any.
    """

    def __init__(self, dies_at: dict[int, int] | None = None, port: int = 0) -> None:
        self._log = Log(lp.current().state_dir / "log.sqlite")
        self._dies_at = (dies_at or {}).get(lp.current().attempt)
        self._changed = threading.Condition()
        self._searchers: dict[str, Searcher] = {}
        self._leaving: set[int] = set()  # allocations that are to be preempted
        self._stop = lp.stop_event()
        lp.register_stop_handler(self._end_attempt)
        for (config,) in self._log("SELECT config FROM experiment ORDER BY n"):
            experiment = Experiment(**json.loads(config))
            self._searchers[experiment.name] = experiment.make_searcher()
        for name, *report in self._log(
            "SELECT experiment, number, report.epochs, loss FROM report JOIN trial ON trial = trial.n"
            " ORDER BY report.n"
        ):
            self._searchers[name].report(*report)
        with self._transaction():
            pass  # it is not in the log who is to leave
        self._pages = serve(self.page, port)
        print(f"the page of trials is at http://127.0.0.1:{self._pages.server_port}/", flush=True)

    @lp.idempotent
    def submit(self, experiment: Experiment) -> None:
        """Begin an experiment; once, if it is submitted again."""
        with self._transaction():
            if experiment.name not in self._searchers:
                searcher = self._searchers[experiment.name] = experiment.make_searcher()
                config = json.dumps(asdict(experiment))
                self._log(
                    "INSERT INTO experiment (name, config) VALUES (?, ?)", experiment.name, config
                )
                self._start(experiment.name, searcher.begin())

    @lp.idempotent
    def close(self) -> None:
        """Nothing more is submitted: slots need not wait for it."""
        with self._transaction():
            self._log("UPDATE master SET is_closed = 1")

    @lp.idempotent
    def wait_for_slots(self, n: int) -> None:
        """Wait until so many slots have come."""
        self._wait_for(lambda: self._log("SELECT count(*) FROM slot")[0][0] >= n)

    @lp.idempotent
    def wait_for_epochs(self, epochs: int) -> None:
        """Wait until a trial has trained for so many, and goes on."""
        going_on = "SELECT n FROM report WHERE epochs >= ? AND target"
        self._wait_for(lambda: not epochs or self._log(going_on, epochs))

    @lp.idempotent
    def wait_for_all(self) -> None:
        """Wait until all trials are closed."""
        self._wait_for(lambda: not self._log("SELECT n FROM trial WHERE NOT is_closed"))

    @lp.idempotent
    def free(self, slot: str, pool: str) -> int:
        """The slot has no work, whatever it had before; returns the newest allocation: it is in none so far."""
        with self._transaction():
            (newest,) = self._log("SELECT coalesce(max(n), 0) FROM allocation")[0]
            self._log("INSERT OR IGNORE INTO slot VALUES (?, ?, NULL)", slot, pool)
            self._end(*self._log("SELECT allocation FROM slot WHERE name = ?", slot)[0], "lost")
            self._log("UPDATE slot SET allocation = NULL WHERE name = ?", slot)
            return int(newest)

    @lp.idempotent
    def work(self, slot: str) -> Work | None:
        """Wait for work; None: there will be none."""
        find = (
            "SELECT allocation.n, allocation.slots, trial.n, number, hyperparameters, epochs, target,"
            " checkpoint FROM slot JOIN allocation ON allocation = allocation.n JOIN trial ON trial = trial.n"
            " WHERE slot.name = ?"
        )
        over = "SELECT * FROM master WHERE is_closed AND NOT EXISTS (SELECT * FROM trial WHERE NOT is_closed)"
        found = self._wait_for(lambda: self._log(find, slot) or self._log(over) and [None])[0]
        if found is None:
            return None
        n, slots, trial, number, hyperparameters, epochs, target, checkpoint = found
        state = None if checkpoint is None else np.frombuffer(checkpoint)
        return Work(
            n, json.loads(slots), trial, number, json.loads(hyperparameters), epochs, target, state
        )

    @lp.idempotent
    def goes_on(self, allocation: int) -> bool:
        """Whether the trial may keep its slots; asked after each epoch."""
        with self._changed:
            return self._runs(allocation) and allocation not in self._leaving

    @lp.idempotent
    def save(self, allocation: int, epochs: int, checkpoint: Array) -> None:
        """Take the checkpoint of a trial that leaves its slots, and goes on later."""
        with self._transaction():
            if self._runs(allocation):
                self._keep(allocation, epochs, checkpoint)
                self._end(allocation, "preempted")

    @lp.idempotent
    def report(self, allocation: int, epochs: int, loss: float, checkpoint: Array) -> int:
        """Take a trial's loss and checkpoint; return up to which epoch it trains now, or 0: it leaves."""
        with self._transaction():
            target = self._report(allocation, epochs, loss, checkpoint)
            (n_reports,) = self._log("SELECT count(*) FROM report")[0]
        if self._dies_at is not None and n_reports >= self._dies_at:
            lp.testing.crash()
        return target

    @lp.idempotent
    def history(self) -> History:
        with self._changed:
            return self._log.history()

    @lp.idempotent
    def page(self) -> str:
        """Return the page of trials, as HTML."""
        return page(self.history())

    def _report(self, allocation: int, epochs: int, loss: float, checkpoint: Array) -> int:
        if not self._runs(allocation):  # it was answered 0, and the answer was lost
            return 0
        trial, name, number = self._log(
            "SELECT trial.n, experiment, number FROM trial JOIN allocation ON trial = trial.n"
            " WHERE allocation.n = ?",
            allocation,
        )[0]
        known = self._log("SELECT target FROM report WHERE trial = ? AND epochs = ?", trial, epochs)
        if known:
            target = int(known[0][0])
        else:
            target, starts = self._searchers[name].report(number, epochs, loss)
            self._keep(allocation, epochs, checkpoint)
            self._log(
                "INSERT INTO report (trial, epochs, loss, target) VALUES (?, ?, ?, ?)",
                *(trial, epochs, loss, target),
            )
            column = f"target = {target}" if target else "is_closed = 1"
            self._log(f"UPDATE trial SET {column} WHERE n = ?", trial)
            self._start(name, starts)
        if not target:
            self._end(allocation, "closed")
        elif allocation in self._leaving:
            self._end(allocation, "preempted")
            return 0
        return target

    def _start(self, name: str, starts: Sequence[Start]) -> None:
        (config,) = self._log("SELECT config FROM experiment WHERE name = ?", name)[0]
        experiment = Experiment(**json.loads(config))
        (n,) = self._log("SELECT count(*) FROM trial WHERE experiment = ?", name)[0]
        for number, start in enumerate(starts, n):
            self._log(
                "INSERT INTO trial (experiment, number, hyperparameters, parent, slots, pool, priority, target)"
                " VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
                *(name, number, json.dumps(start.hyperparameters), start.parent, experiment.slots),
                *(experiment.pool, experiment.priority, start.epochs),
            )
            if start.parent is not None:
                self._log(
                    "UPDATE trial SET (epochs, checkpoint) = (SELECT epochs, checkpoint FROM trial"
                    " WHERE experiment = ? AND number = ?) WHERE experiment = ? AND number = ?",
                    *(name, start.parent, name, number),
                )

    def _keep(self, allocation: int, epochs: int, checkpoint: Array) -> None:
        self._log(
            "UPDATE trial SET epochs = ?, checkpoint = ?"
            " WHERE n = (SELECT trial FROM allocation WHERE n = ?)",
            *(epochs, checkpoint.tobytes(), allocation),
        )

    def _runs(self, allocation: int) -> bool:
        return self._log("SELECT outcome FROM allocation WHERE n = ?", allocation) == [(None,)]

    def _end(self, allocation: int | None, outcome: str) -> None:
        """Write down how it ended, if it has not ended before."""
        self._log(
            "UPDATE allocation SET outcome = ? WHERE n = ? AND outcome IS NULL", outcome, allocation
        )

    def _schedule(self) -> None:
        """A trial has slots until all of these are free again: it never runs twice at once."""
        self._leaving.clear()
        for (pool,) in self._log("SELECT DISTINCT pool FROM slot"):
            waiting = self._log(
                "SELECT priority, n, slots FROM trial WHERE pool = ? AND NOT is_closed AND n NOT IN"
                " (SELECT trial FROM slot JOIN allocation ON allocation = allocation.n)",
                pool,
            )
            running = self._log(
                "SELECT priority, trial.n, trial.slots FROM trial JOIN allocation ON trial = trial.n"
                " WHERE pool = ? AND outcome IS NULL",
                pool,
            )
            free = self._log("SELECT name FROM slot WHERE pool = ? AND allocation IS NULL", pool)
            (n_ending,) = self._log(
                "SELECT count(*) FROM slot JOIN allocation ON allocation = allocation.n"
                " WHERE pool = ? AND outcome IS NOT NULL",
                pool,
            )[0]
            plan = schedule(
                [Job(*row) for row in waiting],
                [Job(*row) for row in running],
                [name for (name,) in free],
                n_ending,
            )
            for job, slots in plan.starts:
                self._log(
                    "INSERT INTO allocation (trial, slots) VALUES (?, ?)", job.n, json.dumps(slots)
                )
                for slot in slots:
                    self._log(
                        "UPDATE slot SET allocation = (SELECT max(n) FROM allocation) WHERE name = ?",
                        slot,
                    )
            for job in plan.preempted:
                ((n,),) = self._log(
                    "SELECT n FROM allocation WHERE trial = ? AND outcome IS NULL", job.n
                )
                self._leaving.add(n)

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        """Change the log, and what follows from it: who has which slot."""
        with self._changed, self._log.transaction():
            yield
            self._schedule()
            self._changed.notify_all()

    def _wait_for(self, find: Callable[[], Any]) -> Any:
        with self._changed:
            found = self._changed.wait_for(lambda: self._stop.is_set() or find())
            if self._stop.is_set():
                raise lp.Stopped(f"{lp.current().name} has ended")
            return found

    def _end_attempt(self) -> None:
        self._pages.shutdown()
        self._pages.server_close()
        with self._changed:
            self._changed.notify_all()
