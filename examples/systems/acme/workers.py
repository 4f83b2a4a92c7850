"""An agent in a program: its actors and its learner in workers of their own."""

from typing import Any

import launchpad as lp
from examples.systems.acme.algorithm import (
    TABLE,
    Actor,
    Agent,
    Learner,
    Result,
    Variables,
    run_episode,
)

SAVE_PERIOD = 25


class SavedLearner:
    """A learner in a worker. Actors get only variables that are saved, so no attempt goes back behind them.

    Args:
        steps: The step after which the program ends.
        kill_at: The step after which the first attempt dies.
    """

    def __init__(
        self, agent: Agent, experience: Any, seed: int, steps: int, kill_at: int | None
    ) -> None:
        self._learner: Learner = lp.current().load(default=Learner(agent, seed, steps))
        self._began_at = self._learner.steps
        self._experience = experience
        self._kill_at = kill_at if lp.current().attempt == 1 else None
        self._publish()

    def get_variables(self) -> Variables:
        return self._variables

    def run(self) -> Result:
        while self._learner.steps < self._learner.last:
            self._learner.step(self._experience)
            if self._learner.steps == self._kill_at:
                lp.testing.crash()
            if self._learner.steps % SAVE_PERIOD == 0:
                self._publish()
        return Result(self._learner, self._began_at, self._experience.info()[TABLE])

    def _publish(self) -> None:
        lp.current().save(self._learner)
        self._variables = self._learner.get_variables()


def act(agent: Agent, source: Any, experience: Any, seed: int) -> None:
    """Play episodes until the program stops."""
    made = agent.environment.make(seed)
    actor = Actor(agent, source, experience, seed)
    while True:
        run_episode(made, actor)
