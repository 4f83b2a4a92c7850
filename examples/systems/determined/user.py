"""The user, who submits experiments, and sees what slots do: they say so here, beside the master."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import NamedTuple

import launchpad as lp
from examples.systems.determined.experiment import Experiment
from examples.systems.determined.log import History
from examples.systems.determined.master import Master


class Submission(NamedTuple):
    """An experiment, submitted when a trial of another has trained for so many epochs, and goes on."""

    experiment: Experiment
    after: int = 0


class Sight(NamedTuple):
    """What a slot does from now on: a trial, in this allocation; nothing if that is 0.

    Attributes:
        attempt: That of the slot.
        epochs: How many the trial has been trained for, as the slot begins.
    """

    slot: str
    attempt: int
    allocation: int
    trial: int
    epochs: int = 0


class Found(NamedTuple):
    """What the user has at the end."""

    history: History
    seen: list[Sight]
    page: str


class User:
    """Submits experiments when all slots are there, and waits for them."""

    def __init__(
        self, master: lp.CourierClient[Master], submissions: Sequence[Submission], n_slots: int
    ) -> None:
        self._master, self._submissions, self._n_slots = master, submissions, n_slots
        self._lock, self._seen = threading.Lock(), list[Sight]()

    def run(self) -> Found:
        self._master.wait_for_slots(self._n_slots)
        for experiment, after in self._submissions:
            self._master.wait_for_epochs(after)
            self._master.submit(experiment)
        self._master.end_submissions()
        self._master.wait_for_all()
        history, page = self._master.history(), self._master.page()
        with self._lock:
            return Found(history, list(self._seen), page)

    def saw(self, allocation: int, trial: int, epochs: int) -> None:
        """A slot says what it does now."""
        caller = lp.caller()
        with self._lock:
            self._seen.append(Sight(caller.worker, caller.attempt, allocation, trial, epochs))
