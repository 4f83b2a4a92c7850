"""Allocations of slots to trials, and how they end. All of this is in the log."""

from __future__ import annotations

import json

from examples.systems.determined.log import Log
from examples.systems.determined.scheduler import Job, schedule


class Allocations:
    """The allocations, which are written in transactions of the log.

    A trial has its slots until all of them are free again, even if one of them has failed. So it never runs
    twice at once. A slot gets an allocation only after it has asked for one. So a slot may say twice that it
    is free, and loses nothing.

    Attributes:
        leaving: Allocations that should save and leave, for a trial that is more urgent.
    """

    def __init__(self, log: Log) -> None:
        self._log = log
        self.leaving: set[int] = set()

    def runs(self, allocation: int) -> bool:
        """True if the allocation has not ended."""
        return self._log("SELECT outcome FROM allocation WHERE n = ?", allocation) == [(None,)]

    def end(self, allocation: int | None, outcome: str) -> None:
        """Write down how the allocation has ended, unless it had ended before."""
        self._log(
            "UPDATE allocation SET outcome = ? WHERE n = ? AND outcome IS NULL", outcome, allocation
        )

    def free(self, slot: str, pool: str) -> int:
        """Note that the slot has no trial. Return the newest allocation so far."""
        self._log("INSERT OR IGNORE INTO slot VALUES (?, ?, 0)", slot, pool)
        ((before,),) = self._log("SELECT allocation FROM slot WHERE name = ?", slot)
        self.end(before, "lost")
        self._log("UPDATE slot SET allocation = 0 WHERE name = ?", slot)
        ((newest,),) = self._log("SELECT coalesce(max(n), 0) FROM allocation")
        return int(newest)

    def ask(self, slot: str) -> None:
        """Note that the slot waits for an allocation, unless it has one already."""
        self._log("UPDATE slot SET allocation = NULL WHERE name = ? AND allocation = 0", slot)

    def schedule(self) -> None:
        """Give slots that ask to trials that wait."""
        self.leaving.clear()
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
            ((n_ending,),) = self._log(
                "SELECT count(*) FROM slot LEFT JOIN allocation ON allocation = allocation.n"
                " WHERE pool = ? AND (allocation = 0 OR outcome IS NOT NULL)",
                pool,
            )
            free = self._log("SELECT name FROM slot WHERE pool = ? AND allocation IS NULL", pool)
            names = [name for (name,) in free]
            plan = schedule(
                [Job(*row) for row in waiting], [Job(*row) for row in running], names, n_ending
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
                self.leaving.update(
                    n
                    for (n,) in self._log(
                        "SELECT n FROM allocation WHERE trial = ? AND outcome IS NULL", job.n
                    )
                )
