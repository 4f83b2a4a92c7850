"""A client that keeps a copy of the learner's variables, and notes how old it gets."""

import math
import time
from typing import NamedTuple, Protocol

import launchpad as lp
from examples._shared.data import Array
from examples.systems.acme.algorithm import Variables

REFRESH_S = 0.05
STALE_S = 5.0  # of the cacher between the learner and its actors
MOST_APART_S = 1.0  # the clocks of hosts


class VariableSource(Protocol):
    """A learner, or a cacher of its answers."""

    def get_variables(self) -> Variables: ...


class Age(NamedTuple):
    """The age of variables, counted from when the learner gave them, by the clock of its host.

    Attributes:
        oldest: The most seconds until the client asked for them, by the clock of the actor's host.
        youngest: The fewest seconds until they arrived. If it is negative, the clocks disagree.
        steps: How many steps the learner was ahead when newer variables came.
        times: How often the client asked for variables.
        is_monotone: True if no variables were of an earlier step than those before.
    """

    oldest: float = -math.inf
    youngest: float = math.inf
    steps: int = 0
    times: int = 0
    is_monotone: bool = True


class VariableClient:
    """A copy of the learner's variables; `take` asks for newer ones."""

    def __init__(self, source: VariableSource) -> None:
        self._source = source
        self.age = Age()
        self.newest = source.get_variables()

    @property
    def values(self) -> Array:
        return self.newest.values

    def take(self) -> None:
        """Take the newest variables; wait while the cacher's are stale."""
        asked_at, new = self._ask()
        age = self.age
        ahead = new.step - self.newest.step
        self.age = Age(
            max(age.oldest, asked_at - new.given_at),
            min(age.youngest, time.time() - new.given_at),
            max(age.steps, ahead),
            age.times + 1,
            age.is_monotone and ahead >= 0,
        )
        self.newest = new

    def wait_for_newer(self) -> None:
        """Wait for newer variables, and take them."""
        step = self.newest.step
        self.take()
        while self.newest.step == step:
            _pause()
            self.take()

    def _ask(self) -> tuple[float, Variables]:
        """Return when the client asked, and the answer.

        The answer was at most STALE_S old when it left the cacher, so it was not older when the client asked,
        however long it took to arrive.
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
