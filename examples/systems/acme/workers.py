"""The parts of an agent in workers of their own, and all of them in one process."""

from typing import Any, NamedTuple

import launchpad as lp
from examples.systems.acme.algorithm import (
    TABLE,
    Actor,
    Agent,
    Learner,
    LearningActor,
    Record,
    Variables,
    run_episode,
)
from examples.systems.acme.replay import LocalReplay

SAVE_PERIOD = 25


class Result(NamedTuple):
    """The result of a learner.

    Attributes:
        versions: Variables at regular steps of the learner.
        begun: The steps after which its attempts began.
    """

    versions: list[Variables]
    records: list[Record]
    table: lp.replay.TableInfo
    begun: list[int]


class SavedLearner:
    """A learner in a worker. Actors get only variables that are saved, so no attempt goes back behind them.

    Args:
        steps: The step after which the program ends.
        kill_at: The steps after which the first attempts die, one for each attempt.
    """

    def __init__(
        self, agent: Agent, experience: Any, seed: int, steps: int, kill_at: tuple[int, ...]
    ) -> None:
        self._learner = Learner(agent, experience, seed, steps)
        self._experience = experience
        self._kill_at = dict(enumerate(kill_at, start=1)).get(lp.current().attempt)
        self._begun: list[int] = []
        saved = lp.current().load()
        if saved is not None:
            self._begun, state = saved
            self._learner.restore(state)
        self._begun.append(self._learner.steps)
        self._publish()

    def get_variables(self) -> Variables:
        return self._variables

    def run(self) -> Result:
        while self._learner.steps < self._learner.last:
            self._learner.step()
            if self._learner.steps == self._kill_at:
                lp.testing.crash()
            if self._learner.steps % SAVE_PERIOD == 0:
                self._publish()
        return result(self._learner, self._experience, self._begun)

    def _publish(self) -> None:
        lp.current().save((self._begun, self._learner.save()))
        self._variables = self._learner.get_variables()


def act(agent: Agent, source: Any, experience: Any, seed: int) -> None:
    """Play episodes until the program stops."""
    made = agent.environment.make(seed)
    actor = Actor(agent, source, experience, seed)
    while True:
        run_episode(made, actor)


def run_alone(agent: Agent, steps: int, seed: int = 0) -> Result:
    """Train the agent in this process."""
    experience = LocalReplay(agent, seed)
    learner = Learner(agent, experience, seed, steps)
    actor = LearningActor(agent, learner, experience, seed)
    made = agent.environment.make(seed)
    while learner.steps < steps:
        run_episode(made, actor)
    return result(learner, experience, [0])


def result(learner: Learner, experience: Any, begun: list[int]) -> Result:
    """Return the result of a learner."""
    return Result(learner.versions, learner.records, experience.info()[TABLE], begun)
