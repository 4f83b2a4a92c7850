"""Games of gymnasium whose actions have numbers, and any network as the policy."""

from __future__ import annotations

import gymnasium
import numpy as np

from examples._shared.networks import Network
from examples.es.evolution import Array


class Game:
    """An environment. The action with the highest score of the network is taken."""

    def __init__(self, name: str, network: Network) -> None:
        self._game = gymnasium.make(name)
        self._network = network

    @property
    def n_parameters(self) -> int:
        return sum(self._network.sizes)

    def play(self, parameters: Array, seed: int) -> float:
        """Return the sum of the rewards."""
        observation, _ = self._game.reset(seed=seed)
        total = 0.0
        over = False
        while not over:
            inputs = np.array([observation], np.float64)
            action = int(self._network.forward(parameters, inputs)[-1].argmax())
            observation, reward, is_won, time_is_up, _ = self._game.step(action)
            total += float(reward)
            over = is_won or time_is_up
        return total
