"""Double DQN with transitions of several steps: it learns from a replay of what actors have done.

Mnih et al. 2015, https://doi.org/10.1038/nature14236; van Hasselt et al. 2016, https://arxiv.org/abs/1509.06461.
"""

import time
from typing import Any, Protocol

import numpy as np

from examples._shared import networks
from examples._shared.data import Array
from examples.systems.acme.adam import Adam
from examples.systems.acme.algorithm import Variables
from examples.systems.acme.policy import SCALE, WIDTHS, Scores
from examples.systems.acme.variable_client import VariableClient

DISCOUNT = 0.99
N_STEPS = 3
EPSILON = 0.1
RANDOM_STEPS = 1000
BATCH_SIZE = 64
RATE = 1e-3
TARGET_PERIOD = 100
PERIOD = 50


class Writer(Protocol):
    """A writer: it makes transitions over several steps of an episode."""

    def add_first(self, observation: Any) -> None: ...

    def add(
        self,
        action: Any,
        reward: Any,
        next_observation: Any,
        discount: Any = 1.0,
        is_last: bool = False,
    ) -> None: ...


class Replay(Protocol):
    """The methods of lp.replay.ReplayClient that DQN uses."""

    def n_step_writer(self, table: str, n: int, discount: float) -> Writer: ...

    def sample_batch(self, table: str, num_samples: int) -> Any: ...


def q_values(parameters: Array, observations: Array) -> list[Array]:
    """Return the outputs of each layer. The last ones are the values of both actions."""
    return networks.forward(WIDTHS, parameters, observations / SCALE)


class DQNLearner:
    """A learner. It moves Q(s, a) towards R + γ·D·Q'(s', argmax Q(s', ·)), where Q' has older parameters."""

    def __init__(self, replay: Replay, seed: int) -> None:
        self._replay = replay
        self.steps = 0
        self.online = networks.first_parameters(WIDTHS, seed)
        last = networks.matrices(WIDTHS, self.online)[-1]
        last[:-1] *= 0.1
        last[-1] = 1.0  # as if the pole never fell: then rewards of 1 - γ add up to 1
        self.target = self.online.copy()
        self._adam = Adam(self.online.size, RATE)

    def get_variables(self) -> Variables:
        return Variables(self.online, self.steps, time.time())

    def step(self) -> None:
        batch = self._replay.sample_batch("transitions", BATCH_SIZE).data
        rows = np.arange(BATCH_SIZE)
        after = batch.next_observation
        best = q_values(self.online, after)[-1].argmax(axis=1)
        future = DISCOUNT * batch.discount * q_values(self.target, after)[-1][rows, best]
        layers = q_values(self.online, batch.observation)
        errors = layers[-1][rows, batch.action] - (1 - DISCOUNT) * batch.reward - future
        by_scores = np.zeros_like(layers[-1])
        by_scores[rows, batch.action] = errors.clip(-1, 1) / BATCH_SIZE
        gradient = networks.backward(WIDTHS, self.online, layers, by_scores)[1]
        self.steps += 1
        self.online = self.online + self._adam.change(gradient, self.steps)
        if self.steps % TARGET_PERIOD == 0:
            self.target = self.online

    def save(self) -> Any:
        return self.steps, self.online, self.target, self._adam.state

    def restore(self, saved: Any) -> None:
        self.steps, self.online, self.target, self._adam.state = saved


class DQNActor:
    """An actor that acts at random at first, and now and then later."""

    def __init__(self, variables: VariableClient, replay: Replay, seed: int) -> None:
        self._variables = variables
        self._scores = Scores(variables)
        self._writer = replay.n_step_writer("transitions", N_STEPS, DISCOUNT)
        self._rng = np.random.default_rng(seed)
        self._n_steps = 0
        self.observe_first = self._writer.add_first

    def select_action(self, observation: Array) -> int:
        if self._rng.random() < max(EPSILON, 1 - self._n_steps / RANDOM_STEPS):
            return int(self._rng.integers(2))
        return int(self._scores(observation).argmax())

    def observe(
        self, action: int, reward: float, observation: Array, discount: float, is_last: bool
    ) -> None:
        self._writer.add(action, reward, observation, discount, is_last)

    def update(self) -> None:
        self._n_steps += 1
        if self._n_steps % PERIOD == 0:
            self._variables.take()
