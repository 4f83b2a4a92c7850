"""The user. It submits experiments, and records what slots do: they report to it, beside the master."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import NamedTuple

import launchpad as lp
from examples.systems.determined.experiment import Experiment
from examples.systems.determined.log import History
from examples.systems.determined.master import Master


class Submission(NamedTuple):
    """An experiment, submitted when a trial of another one has trained for `after` epochs and goes on."""

    experiment: Experiment
    after: int = 0


class Sight(NamedTuple):
    """The new activity of a slot: a trial, in an allocation. If the allocation is 0, it is idle.

    Attributes:
        attempt: The attempt of the slot.
        epochs: How many epochs the trial has been trained for when the slot begins.
    """

    slot: str
    attempt: int
    allocation: int
    trial: int
    epochs: int = 0


class Found(NamedTuple):
    """The result of the user."""

    history: History
    seen: list[Sight]
    page: str


class User:
    """A user that submits experiments when all slots are there, and waits for their ends."""

    def __init__(
        self, master: lp.CourierClient[Master], submissions: Sequence[Submission], n_slots: int
    ) -> None:
        self._master = master
        self._submissions = submissions
        self._n_slots = n_slots
        self._lock = threading.Lock()
        self._seen = list[Sight]()

    def run(self) -> Found:
        self._master.wait_for_slots(self._n_slots)
        for experiment, after in self._submissions:
            self._master.wait_for_epochs(after)
            self._master.submit(experiment)
        self._master.end_submissions()
        self._master.wait_for_all()
        history = self._master.history()
        page = self._master.page()
        with self._lock:
            return Found(history, list(self._seen), page)

    def saw(self, allocation: int, trial: int, epochs: int) -> None:
        """Record what the calling slot does now."""
        caller = lp.caller()
        with self._lock:
            self._seen.append(Sight(caller.worker, caller.attempt, allocation, trial, epochs))
