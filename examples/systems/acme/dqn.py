"""Double DQN with transitions of several steps: learns from a replay what others have done.

Mnih et al. 2015, https://doi.org/10.1038/nature14236; van Hasselt et al. 2016, https://arxiv.org/abs/1509.06461.
"""

import time
from typing import Any, Protocol

import numpy as np

from examples._shared import networks
from examples._shared.digits import Array
from examples.systems.acme.adam import Adam
from examples.systems.acme.algorithm import Variables
from examples.systems.acme.policy import SCALE, WIDTHS, Scores
from examples.systems.acme.variable_client import VariableClient

DISCOUNT, N_STEPS, EPSILON, RANDOM_STEPS = 0.99, 3, 0.1, 1000
BATCH_SIZE, RATE, TARGET_PERIOD, PERIOD = 64, 1e-3, 100, 50


class Writer(Protocol):
    """Makes transitions over several steps of an episode."""

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
    """What lp.replay.ReplayClient can do, as far as it is needed."""

    def n_step_writer(self, table: str, n: int, discount: float) -> Writer: ...

    def sample_batch(self, table: str, num_samples: int) -> Any: ...


def q_values(parameters: Array, observations: Array) -> list[Array]:
    """Return the layers of the network, the last of which are the values of both actions."""
    return networks.forward(WIDTHS, parameters, observations / SCALE)


class DQNLearner:
    """Moves Q(s, a) towards R + γ·D·Q'(s', argmax Q(s', ·)), where Q' are older parameters."""

    def __init__(self, replay: Replay, seed: int) -> None:
        self._replay, self.steps = replay, 0
        self.online = networks.first_parameters(WIDTHS, seed)
        last = networks.matrices(WIDTHS, self.online)[-1]
        last[:-1] *= 0.1
        last[-1] = 1.0  # as if the pole never fell: rewards of 1 - γ add up to that
        self.target, self._adam = self.online.copy(), Adam(self.online.size, RATE)

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
    """Acts at random now and then, and at first."""

    def __init__(self, variables: VariableClient, replay: Replay, seed: int) -> None:
        self._variables, self._scores = variables, Scores(variables)
        self._writer = replay.n_step_writer("transitions", N_STEPS, DISCOUNT)
        self._rng, self._n_steps = np.random.default_rng(seed), 0
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
