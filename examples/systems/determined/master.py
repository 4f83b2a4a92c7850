"""The master: it gives trials to slots, asks searchers how trials go on, and writes everything down.

It may be killed at any moment. The next attempt reads the log, and tells the searchers all reports again.

    slot ──free──▶ work ──▶ [ goes_on after each epoch ──▶ report ]* ──▶ free …
                                      └─ no ──▶ save ──────────────────────┘
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from typing import Any, NamedTuple

import numpy as np

import launchpad as lp
from examples._shared.data import Array
from examples.systems.determined.algorithm import Hyperparameters, Start
from examples.systems.determined.allocations import Allocations
from examples.systems.determined.experiment import Experiment
from examples.systems.determined.log import History, Log
from examples.systems.determined.page import page, serve


class Work(NamedTuple):
    """The work of a slot: to be a rank of a trial, from the epochs of its checkpoint to the target."""

    allocation: int
    slots: list[str]
    trial: int
    number: int
    hyperparameters: Hyperparameters
    epochs: int
    target: int
    parameters: Array | None


class Master:
    """The master. It serves slots and users.

    Args:
        dies_at: For each attempt in which it dies, the number of reports. It dies when that report is in the
            log, and the slot has no answer yet.
        port: The port of the page of trials; 0: any free port.
    """

    def __init__(self, dies_at: dict[int, int] | None = None, port: int = 0) -> None:
        me = lp.current()
        self._dies_at = (dies_at or {}).get(me.attempt)
        self._changed = threading.Condition()
        self._log = Log(me.state_dir / "log.sqlite", me.attempt)
        self._allocations = Allocations(self._log)
        submitted = self._log("SELECT name, config FROM experiment ORDER BY n")
        self._experiments = {name: Experiment(**json.loads(config)) for name, config in submitted}
        self._searchers = {name: each.make_searcher() for name, each in self._experiments.items()}
        for name, *report in self._log(
            "SELECT experiment, number, report.epochs, loss FROM report JOIN trial ON trial = trial.n"
            " ORDER BY report.n"
        ):
            self._searchers[name].report(*report)
        with self._transaction():
            pass  # this schedules: the log doesn't say which trials should leave
        self._pages = serve(self.page, port)
        self._stop = lp.stop_event()
        lp.register_stop_handler(self._end_attempt)
        print(f"the page of trials is at http://127.0.0.1:{self._pages.server_port}/", flush=True)

    @lp.idempotent
    def submit(self, experiment: Experiment) -> None:
        """Begin an experiment. If it is submitted again, nothing happens."""
        name = experiment.name
        config = json.dumps(asdict(experiment))
        with self._transaction():
            if name not in self._experiments:
                self._log("INSERT INTO experiment (name, config) VALUES (?, ?)", name, config)
                self._experiments[name] = experiment
                self._searchers[name] = experiment.make_searcher()
                self._start(experiment, self._searchers[name].begin())

    @lp.idempotent
    def end_submissions(self) -> None:
        """Note that no more experiments come, so that slots don't wait for them."""
        with self._transaction():
            self._log("UPDATE master SET is_closed = 1")

    @lp.idempotent
    def wait_for_slots(self, n: int) -> None:
        """Wait until this number of slots have come."""
        self._wait_for(lambda: self._log("SELECT count(*) FROM slot") >= [(n,)])

    @lp.idempotent
    def wait_for_epochs(self, epochs: int) -> None:
        """Wait until a trial has trained for this number of epochs, and goes on."""
        going_on = "SELECT n FROM report WHERE epochs >= ? AND target"
        self._wait_for(lambda: not epochs or self._log(going_on, epochs))

    @lp.idempotent
    def wait_for_all(self) -> None:
        """Wait until all trials are closed."""
        self._wait_for(lambda: not self._log("SELECT n FROM trial WHERE NOT is_closed"))

    @lp.idempotent
    def free(self, slot: str, pool: str) -> int:
        """Note that the slot has no trial, whatever it had before. Return the newest allocation."""
        with self._transaction():
            return self._allocations.free(slot, pool)

    @lp.idempotent
    def work(self, slot: str) -> Work | None:
        """Wait for a trial, and return the slot's work. None: there will be no more trials."""
        of_slot = (
            "SELECT allocation.n, allocation.slots, trial.n, number, hyperparameters, epochs, target,"
            " parameters FROM slot JOIN allocation ON allocation = allocation.n JOIN trial ON trial = trial.n"
            " WHERE slot.name = ?"
        )
        over = (
            "SELECT NULL FROM master"
            " WHERE is_closed AND NOT EXISTS (SELECT * FROM trial WHERE NOT is_closed)"
        )
        with self._transaction():
            self._allocations.ask(slot)
        (row,) = self._wait_for(lambda: self._log(of_slot, slot) or self._log(over))
        if row == (None,):
            return None
        allocation, slots, trial, number, hyperparameters, epochs, target, parameters = row
        return Work(
            allocation,
            json.loads(slots),
            trial,
            number,
            json.loads(hyperparameters),
            epochs,
            target,
            None if parameters is None else np.frombuffer(parameters),
        )

    @lp.idempotent
    def goes_on(self, allocation: int) -> bool:
        """True if the trial may keep its slots. It asks after each epoch."""
        with self._changed:
            is_leaving = allocation in self._allocations.leaving
            return self._allocations.runs(allocation) and not is_leaving

    @lp.idempotent
    def save(self, allocation: int, epochs: int, parameters: Array) -> None:
        """Take the checkpoint of a trial that leaves its slots and goes on later."""
        with self._transaction():
            if self._allocations.runs(allocation):
                self._keep(allocation, epochs, parameters)
                self._allocations.end(allocation, "preempted")

    @lp.idempotent
    def report(self, allocation: int, epochs: int, loss: float, parameters: Array) -> int:
        """Take a trial's loss and checkpoint. Return the epoch up to which it trains now; 0: it leaves."""
        with self._transaction():
            # If the report came before and its answer was lost, it is in the log already, and counts once.
            runs = self._allocations.runs(allocation)
            target = self._report(allocation, epochs, loss, parameters) if runs else 0
            ((n_reports,),) = self._log("SELECT count(*) FROM report")
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

    def _report(self, allocation: int, epochs: int, loss: float, parameters: Array) -> int:
        ((trial, name, number),) = self._log(
            "SELECT trial.n, experiment, number FROM trial JOIN allocation ON trial = trial.n"
            " WHERE allocation.n = ?",
            allocation,
        )
        rows = self._log("SELECT target FROM report WHERE trial = ? AND epochs = ?", trial, epochs)
        if rows:
            return int(rows[0][0])
        target, starts = self._searchers[name].report(number, epochs, loss)
        self._keep(allocation, epochs, parameters)
        self._log(
            "INSERT INTO report (trial, epochs, loss, target) VALUES (?, ?, ?, ?)",
            *(trial, epochs, loss, target),
        )
        self._log(
            "UPDATE trial SET target = ?, is_closed = ? WHERE n = ?", target, not target, trial
        )
        self._start(self._experiments[name], starts)
        if not target:
            self._allocations.end(allocation, "closed")
        elif allocation in self._allocations.leaving:
            self._allocations.end(allocation, "preempted")
            return 0
        return target

    def _start(self, experiment: Experiment, starts: Sequence[Start]) -> None:
        name = experiment.name
        ((n,),) = self._log("SELECT count(*) FROM trial WHERE experiment = ?", name)
        for number, start in enumerate(starts, n):
            ((epochs, parameters),) = self._log(
                "SELECT epochs, parameters FROM trial WHERE experiment = ? AND number = ?",
                *(name, start.parent),
            ) or [(0, None)]
            self._log(
                "INSERT INTO trial (experiment, number, hyperparameters, parent, slots, pool, priority,"
                " target, epochs, parameters) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
                *(name, number, json.dumps(start.hyperparameters), start.parent, experiment.slots),
                *(experiment.pool, experiment.priority, start.epochs, epochs, parameters),
            )

    def _keep(self, allocation: int, epochs: int, parameters: Array) -> None:
        self._log(
            "UPDATE trial SET epochs = ?, parameters = ?"
            " WHERE n = (SELECT trial FROM allocation WHERE n = ?)",
            *(epochs, parameters.tobytes(), allocation),
        )

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        """Change the log. At the end, schedule: the slots may now belong to other trials."""
        with self._changed, self._log.transaction():
            yield
            self._allocations.schedule()
            self._changed.notify_all()

    def _wait_for(self, find: Callable[[], Any]) -> Any:
        with self._changed:
            answer = self._changed.wait_for(lambda: self._stop.is_set() or find())
            if self._stop.is_set():
                raise lp.Stopped(f"{lp.current().name} has ended")
            return answer

    def _end_attempt(self) -> None:
        self._pages.shutdown()
        self._pages.server_close()
        with self._changed:
            self._changed.notify_all()
            self._log.close()
