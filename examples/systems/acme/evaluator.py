"""The evaluator: it plays by the newest variables, without exploration, until they are good."""

from collections.abc import Mapping
from typing import NamedTuple, Protocol

import numpy as np

from examples.systems.acme.algorithm import EnvironmentLoop, Variables
from examples.systems.acme.policy import GreedyActor
from examples.systems.acme.variable_client import Age, VariableClient, VariableSource

MOST = 500  # what an episode can return
SEED = 1_000_000  # of the evaluator's episodes


class Counter(Protocol):
    """The methods of lp.Counter that the evaluator uses."""

    def increment(self, **by: float) -> dict[str, float]: ...

    def get_counts(self) -> Mapping[str, float]: ...


class Evaluation(NamedTuple):
    """A point of the curve: the mean return of variables, and the counts before the evaluation."""

    step: int
    mean_return: float
    counts: dict[str, float]


class Goal(NamedTuple):
    """The goal at which a run ends. It is higher than the claim, so that luck is not enough.

    Attributes:
        claimed: The claimed mean return of episodes that the evaluator has not seen.
        wanted: The mean return of `episodes` episodes at which the evaluator ends the run.
        limit: The number of steps of all actors after which the run ends in any case.
    """

    claimed: float
    wanted: float
    episodes: int
    limit: int = 300_000


class Evaluated(NamedTuple):
    """The result of the evaluator.

    Attributes:
        variables: The variables of the last evaluation.
    """

    variables: Variables
    curve: list[Evaluation]
    age: Age


class Evaluator:
    """The evaluator. It evaluates the newest variables, again and again.

    Args:
        last_crash: The step of the learner up to which the evaluator doesn't end the run.
    """

    def __init__(
        self, source: VariableSource, counter: Counter, goal: Goal, last_crash: int = 0
    ) -> None:
        self._variables = VariableClient(source)
        self._counter = counter
        self._loop = EnvironmentLoop(GreedyActor(self._variables), SEED)
        self._goal = goal
        self._last_crash = last_crash
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
        mean = mean_return(self._loop, self._goal.episodes, self._goal.wanted)
        self.curve.append(Evaluation(self._variables.newest.step, mean, counts))
        if mean > self._best or self.is_done():
            self._best = max(mean, self._best)
            texts = (f"{number:.0f} {name.replace('_', ' ')}" for name, number in counts.items())
            print(f"mean return {mean:.1f} after {', '.join(texts)}", flush=True)

    def is_done(self) -> bool:
        if not self.curve:
            return False
        step, mean, counts = self.curve[-1]
        is_good = mean >= self._goal.wanted and step > self._last_crash
        return is_good or counts.get("actor_steps", 0) > self._goal.limit

    def result(self) -> Evaluated:
        return Evaluated(self._variables.newest, self.curve, self._variables.age)


def mean_return(loop: EnvironmentLoop, episodes: int, wanted: float = 0.0) -> float:
    """Return the mean return of the episodes. Stop early once it cannot reach `wanted` any more."""
    returns: list[int] = []
    spare = (MOST - wanted) * episodes
    while len(returns) < episodes and spare >= 0:
        returns.append(loop.run_episode())
        spare -= MOST - returns[-1]
    return float(np.mean(returns))
