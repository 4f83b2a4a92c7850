"""A pole on a cart, and a policy of four numbers that should keep it upright."""

from __future__ import annotations

import gymnasium
import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.float64]

PARAMETERS = 4  # one for each: position and speed of the cart, angle and angular speed of the pole


class CartPole:
    """An environment. It plays episodes of gymnasium's CartPole-v1, of at most 500 steps each."""

    def __init__(self) -> None:
        self._environment = gymnasium.make("CartPole-v1")

    def play(self, parameters: Array, seed: int) -> float:
        """Return how many steps the pole stayed up; the same seed starts the same way."""
        observation, _ = self._environment.reset(seed=seed)
        total = 0.0
        over = False
        while not over:
            to_the_right = int(observation @ parameters > 0)
            observation, reward, fell, time_is_up, _ = self._environment.step(to_the_right)
            total += float(reward)
            over = fell or time_is_up
        return total
