"""Plays by the newest variables as if it were for real, until they are good."""

from collections.abc import Mapping
from typing import NamedTuple, Protocol

import numpy as np

from examples.acme.algorithm import EnvironmentLoop, Variables
from examples.acme.policy import GreedyActor
from examples.acme.variable_client import Age, VariableClient, VariableSource

EPISODES, SEED = 60, 1_000_000
MOST = 500  # that an episode can return


class Counter(Protocol):
    """What lp.Counter can do, as far as it is needed."""

    def increment(self, **by: float) -> dict[str, float]: ...

    def get_counts(self) -> Mapping[str, float]: ...


class Evaluation(NamedTuple):
    """A point of the curve: the mean return of variables, and what had been counted before."""

    step: int
    mean_return: float
    counts: dict[str, float]


class Evaluated(NamedTuple):
    """What the evaluator has found.

    Attributes:
        variables: Those of the last evaluation.
    """

    variables: Variables
    curve: list[Evaluation]
    age: Age


class Evaluator:
    """Evaluates the newest variables, again and again.

    Args:
        wanted: A mean return that is good.
        least_step: Of the learner, before which it does not end.
        limit: After so many steps of all actors it ends in any case.
    """

    def __init__(
        self,
        source: VariableSource,
        counter: Counter,
        wanted: float,
        limit: int,
        least_step: int = 0,
    ) -> None:
        self._variables, self._counter = VariableClient(source), counter
        self._loop = EnvironmentLoop(GreedyActor(self._variables), SEED)
        self._wanted, self._least_step, self._limit = wanted, least_step, limit
        self.curve: list[Evaluation] = []
        self._best = 0.0

    def run(self) -> Evaluated:
        while True:
            self.evaluate()
            if self.is_done():
                return self.result()
            self._variables.wait_for_newer()

    def evaluate(self) -> None:
        self._variables.take()
        counts = dict(self._counter.get_counts())
        mean = mean_return(self._loop, EPISODES, self._wanted)
        self.curve.append(Evaluation(self._variables.newest.step, mean, counts))
        if mean > self._best or self.is_done():
            self._best = max(mean, self._best)
            shown = (f"{number:.0f} {name.replace('_', ' ')}" for name, number in counts.items())
            print(f"mean return {mean:.1f} after {', '.join(shown)}", flush=True)

    def is_done(self) -> bool:
        if not self.curve:
            return False
        step, mean, counts = self.curve[-1]
        is_good = mean >= self._wanted and step > self._least_step
        return is_good or counts.get("actor_steps", 0) > self._limit

    def result(self) -> Evaluated:
        return Evaluated(self._variables.newest, self.curve, self._variables.age)


def mean_return(loop: EnvironmentLoop, episodes: int, wanted: float = 0.0) -> float:
    """Return that of so many episodes; of fewer, once it cannot be `wanted` any more."""
    returns: list[int] = []
    spare = (MOST - wanted) * episodes
    while len(returns) < episodes and spare >= 0:
        returns.append(loop.run_episode())
        spare -= MOST - returns[-1]
    return float(np.mean(returns))
