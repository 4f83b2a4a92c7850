"""Acme's interfaces: what acts, what learns, and the loop between an actor and its environment.

    environment ◀──action── actor ──observe──▶ experience ──▶ learner
         └──observation──────▶ ▲◀───────────variables───────────┘

An agent is an actor and a learner (dqn.py, impala.py). In one process `LearningActor` makes one actor of
both, which learns in its `update`; spread, each is in a worker of its own (program.py). Neither knows.
"""

from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

import gymnasium

from examples._shared.digits import Array


class Variables(NamedTuple):
    """What an actor acts by; after how many of the learner's steps, and when by its clock, it was given."""

    values: Array
    step: int
    given_at: float


class Actor(Protocol):
    """Acts, and tells of what came of it."""

    def select_action(self, observation: Array) -> int: ...

    def observe_first(self, observation: Array) -> None:
        """Begin an episode."""

    def observe(
        self, action: int, reward: float, observation: Array, discount: float, is_last: bool
    ) -> None:
        """Take what came of the action; the discount is 0 where the pole has fallen."""

    def update(self) -> None:
        """Take newer variables, now and then. Called after each step."""


class Learner(Protocol):
    """Learns from experience, a batch in each step."""

    def get_variables(self) -> Variables:
        """Return what actors should act by now."""

    def step(self) -> None:
        """Wait for a batch, and learn from it."""

    def save(self) -> Any:
        """Return all that the next steps depend on."""

    def restore(self, saved: Any) -> None:
        """Go on from there."""


class LearningActor:
    """An actor and its learner as one actor: the agent in one process."""

    def __init__(self, actor: Actor, learner: Learner, can_learn: Callable[[], bool]) -> None:
        self._actor, self._learner, self._can_learn = actor, learner, can_learn
        self.select_action, self.observe_first = actor.select_action, actor.observe_first
        self.observe = actor.observe

    def update(self) -> None:
        while self._can_learn():
            self._learner.step()
        self._actor.update()


class EnvironmentLoop:
    """Lets an actor play episodes of CartPole-v1, which end after 500 steps at the latest."""

    def __init__(self, actor: Actor, seed: int) -> None:
        self._actor, self._environment = actor, gymnasium.make("CartPole-v1")
        self._environment.reset(seed=seed)

    def run_episode(self) -> int:
        """Return how many steps the pole stayed up: the return."""
        actor, n_steps, is_last = self._actor, 0, False
        observation = self._environment.reset()[0]
        actor.observe_first(observation)
        while not is_last:
            action = actor.select_action(observation)
            observation, reward, fell, is_late, _ = self._environment.step(action)
            n_steps, is_last = n_steps + 1, fell or is_late
            actor.observe(action, float(reward), observation, 0.0 if fell else 1.0, is_last)
            actor.update()
        return n_steps
