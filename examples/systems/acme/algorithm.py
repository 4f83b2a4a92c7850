"""Acme's interfaces: what acts, what learns, and the loop between an actor and its environment.

    environment ◀──action── actor ──observe──▶ experience ──▶ learner
         └──observation──────▶ ▲◀───────────variables───────────┘

An agent is an actor and a learner (dqn.py, impala.py). In one process `LearningActor` makes one actor of
both, which learns in its `update`. In a program each is in a worker of its own (program.py). Neither of them
knows which it is.
"""

from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

import gymnasium

from examples._shared.data import Array


class Variables(NamedTuple):
    """The values that an actor acts by, the learner's step, and the time by the learner's clock."""

    values: Array
    step: int
    given_at: float


class Actor(Protocol):
    """An actor: it selects actions, and observes what comes of them."""

    def select_action(self, observation: Array) -> int: ...

    def observe_first(self, observation: Array) -> None:
        """Begin an episode."""

    def observe(
        self, action: int, reward: float, observation: Array, discount: float, is_last: bool
    ) -> None:
        """Take the result of an action. The discount is 0 if the pole has fallen."""

    def update(self) -> None:
        """Take newer variables, now and then. The loop calls this after each step."""


class Learner(Protocol):
    """A learner: it learns from experience, a batch in each step."""

    def get_variables(self) -> Variables:
        """Return the variables that actors should act by now."""

    def step(self) -> None:
        """Wait for a batch, and learn from it."""

    def save(self) -> Any:
        """Return the state that the next steps depend on."""

    def restore(self, saved: Any) -> None:
        """Go on from a saved state."""


class LearningActor:
    """An actor and its learner as one actor: the agent in one process."""

    def __init__(self, actor: Actor, learner: Learner, can_learn: Callable[[], bool]) -> None:
        self._actor = actor
        self._learner = learner
        self._can_learn = can_learn
        self.select_action = actor.select_action
        self.observe_first = actor.observe_first
        self.observe = actor.observe

    def update(self) -> None:
        while self._can_learn():
            self._learner.step()
        self._actor.update()


class EnvironmentLoop:
    """The loop in which an actor plays episodes of CartPole-v1, of at most 500 steps each."""

    def __init__(self, actor: Actor, seed: int) -> None:
        self._actor = actor
        self._environment = gymnasium.make("CartPole-v1")
        self._environment.reset(seed=seed)

    def run_episode(self) -> int:
        """Return how many steps the pole stayed up: the return."""
        actor = self._actor
        n_steps = 0
        is_last = False
        observation = self._environment.reset()[0]
        actor.observe_first(observation)
        while not is_last:
            action = actor.select_action(observation)
            observation, reward, fell, is_late, _ = self._environment.step(action)
            n_steps = n_steps + 1
            is_last = fell or is_late
            actor.observe(action, float(reward), observation, 0.0 if fell else 1.0, is_last)
            actor.update()
        return n_steps
