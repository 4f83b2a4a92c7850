"""VariableClient: a copy of the learner's variables, and how old it got."""

import math
import time
from typing import NamedTuple, Protocol

import launchpad as lp
from examples._shared.digits import Array
from examples.systems.acme.algorithm import Variables

REFRESH_S, STALE_S = 0.05, 5.0  # of the cacher between the learner and its actors
MOST_APART_S = 1.0  # the clocks of hosts


class VariableSource(Protocol):
    """A learner, or a cacher of what it answers."""

    def get_variables(self) -> Variables: ...


class Age(NamedTuple):
    """How old variables were: from when the learner gave them, by the clock of its host.

    Attributes:
        oldest: The most seconds until they were asked for, by the clock of the actor's host.
        youngest: The fewest until they were there. If these are negative, the clocks disagree.
        steps: How many the learner was ahead when newer ones came.
        times: How often they were asked for.
        is_monotone: Whether none were of an earlier step than those before.
    """

    oldest: float = -math.inf
    youngest: float = math.inf
    steps: int = 0
    times: int = 0
    is_monotone: bool = True


class VariableClient:
    """Has the variables that it was given last; `take` asks for newer ones."""

    def __init__(self, source: VariableSource) -> None:
        self._source, self.age = source, Age()
        self.newest = source.get_variables()

    @property
    def values(self) -> Array:
        return self.newest.values

    def take(self) -> None:
        """Take the newest there are; while these are stale, wait."""
        asked_at, new = self._ask()
        age, ahead = self.age, new.step - self.newest.step
        self.age = Age(
            max(age.oldest, asked_at - new.given_at),
            min(age.youngest, time.time() - new.given_at),
            max(age.steps, ahead),
            age.times + 1,
            age.is_monotone and ahead >= 0,
        )
        self.newest = new

    def wait_for_newer(self) -> None:
        """Take newer ones than these, as soon as there are any."""
        step = self.newest.step
        self.take()
        while self.newest.step == step:
            _pause()
            self.take()

    def _ask(self) -> tuple[float, Variables]:
        """Return when it asked, and the answer.

        That was not older than STALE_S when it left the cacher: so it was not when asked for, however long
        it has travelled.
        """
        while True:
            asked_at = time.time()
            try:
                return asked_at, self._source.get_variables()
            except lp.StaleError:
                _pause()


def _pause() -> None:
    """Wait until the cacher has asked the learner once more."""
    if lp.stop_event().wait(REFRESH_S):
        raise lp.Stopped("the program stops: no newer variables are waited for")
