"""A pole on a cart, and a policy of four numbers that should keep it upright."""

from __future__ import annotations

import gymnasium

from examples.es.evolution import Array


class CartPole:
    """An environment. It plays episodes of gymnasium's CartPole-v1, of at most 500 steps each."""

    n_parameters = 4  # for position and speed of the cart, angle and angular speed of the pole

    def __init__(self) -> None:
        self._environment = gymnasium.make("CartPole-v1")

    def play(self, parameters: Array, seed: int) -> float:
        """Return how many steps the pole stayed up."""
        observation, _ = self._environment.reset(seed=seed)
        total = 0.0
        over = False
        while not over:
            to_the_right = int(observation @ parameters > 0)
            observation, reward, fell, time_is_up, _ = self._environment.step(to_the_right)
            total += float(reward)
            over = fell or time_is_up
        return total
