"""Environments of gymnasium, by name, in which all policies see numbers of similar size."""

import itertools
from dataclasses import dataclass
from typing import Any

import gymnasium
import numpy as np
from gymnasium import wrappers

from examples._shared.data import Array

RANDOM_EPISODES = 20
BINS = 5  # for each number of a continuous action


@dataclass(frozen=True)
class Environment:
    """An environment, and what random play has shown of it. `measure` makes one from a name.

    Attributes:
        scale: What observations are divided by, number by number.
        reward_scale: What rewards are divided by.
        mean_reward: The mean of these rewards in random play.
        random_return: The mean return of random play.
        solved: The mean return at which gymnasium calls the environment solved, or None.
    """

    name: str
    n_inputs: int
    n_actions: int
    scale: Array
    reward_scale: float
    mean_reward: float
    random_return: float
    solved: float | None

    def make(self, seed: int) -> Any:
        """Return gymnasium's environment, with scaled observations and rewards."""
        made = wrappers.TransformObservation(_make(self.name), lambda raw: raw / self.scale, None)
        made.reset(seed=seed)
        return wrappers.TransformReward(made, lambda reward: float(reward) / self.reward_scale)


def measure(name: str) -> Environment:
    """Play at random, and return the environment with its scales."""
    made = _make(name)
    made.action_space.seed(0)
    observations = [made.reset(seed=0)[0]]
    rewards = []
    for _ in range(RANDOM_EPISODES):
        made.reset()
        is_last = False
        while not is_last:
            observation, reward, is_over, is_late, _ = made.step(made.action_space.sample())
            observations.append(observation)
            rewards.append(float(reward))
            is_last = is_over or is_late
    space = made.observation_space
    bounds = np.maximum(-space.low, space.high).astype(np.float64)
    # An observation without bounds gets twice what random play has reached.
    ranges = np.where(bounds < 1e6, bounds, 2 * np.abs(observations).max(axis=0))
    largest = float(np.abs(rewards).max()) or 1.0
    reward_scale = largest / 10
    return Environment(
        name,
        n_inputs=len(ranges),
        n_actions=int(made.action_space.n),
        scale=ranges / 2,
        reward_scale=reward_scale,
        mean_reward=float(np.mean(rewards)) / reward_scale,
        random_return=sum(rewards) / RANDOM_EPISODES,
        solved=made.spec.reward_threshold,
    )


def _make(name: str) -> Any:
    """Return gymnasium's environment. Its observations are flat, and its actions are numbered.

    The actions of a continuous environment are the points of a grid.
    """
    made: gymnasium.Env[Any, Any] = wrappers.FlattenObservation(gymnasium.make(name))
    space = made.action_space
    if not isinstance(space, gymnasium.spaces.Box):
        return made
    bounds = zip(space.low.ravel(), space.high.ravel(), strict=True)
    values = [np.linspace(low, high, BINS, dtype=space.dtype) for low, high in bounds]
    grid = [np.array(point).reshape(space.shape) for point in itertools.product(*values)]
    return wrappers.TransformAction(made, grid.__getitem__, gymnasium.spaces.Discrete(len(grid)))
