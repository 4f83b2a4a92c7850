"""An observer beside the master: slots tell it what they do, and it decides nothing."""

import threading
from typing import NamedTuple

import launchpad as lp


class Sight(NamedTuple):
    """What a slot does from now on: a trial, in this allocation; nothing if that is 0.

    Attributes:
        attempt: That of the slot's agent.
    """

    slot: str
    attempt: int
    allocation: int
    trial: int


class Observer:
    """Keeps what it is told, in the order in which it comes."""

    def __init__(self) -> None:
        self._lock, self._seen = threading.Lock(), list[Sight]()

    def saw(self, slot: str, allocation: int, trial: int) -> None:
        with self._lock:
            self._seen.append(Sight(slot, lp.caller().attempt, allocation, trial))

    def seen(self) -> list[Sight]:
        with self._lock:
            return list(self._seen)
