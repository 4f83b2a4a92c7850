"""Two agents: DQN learns from a replay, IMPALA from a queue of what actors with older policies have done.

Double DQN: Mnih et al. 2015, https://doi.org/10.1038/nature14236; van Hasselt et al. 2016,
https://arxiv.org/abs/1509.06461. IMPALA: Espeholt et al. 2018, https://arxiv.org/abs/1802.01561.
"""

from dataclasses import dataclass

import numpy as np

import launchpad as lp
from examples._shared.data import Array
from examples._shared.environments import Environment
from examples._shared.networks import Network, softmax
from examples.systems.acme.algorithm import TABLE, Agent, Steps

DISCOUNT = 0.99
EPSILON = 0.1
RANDOM_STEPS = 1000
ENTROPY = 0.01


@dataclass
class DQN(Agent):
    """Double DQN. The network's outputs are Q(s, a), less the mean reward of random play."""

    name = "dqn"
    environment: Environment
    network: Network
    item_length: int = 4
    batch_size: int = 16

    def make_table(self) -> lp.replay.Table:
        ratio = lp.replay.SampleToInsertRatio(16, min_size_to_sample=125, error_buffer=256)
        uniform = lp.replay.Uniform()
        return lp.replay.Table(TABLE, uniform, lp.replay.Fifo(), 10_000, rate_limiter=ratio)

    def explore(self, outputs: Array, n_steps: int, rng: np.random.Generator) -> tuple[int, float]:
        is_random = rng.random() < max(EPSILON, 1 - n_steps / RANDOM_STEPS)
        action = rng.integers(len(outputs)) if is_random else outputs.argmax()
        return int(action), 1.0

    def gradient(self, online: Array, target: Array, batch: Steps) -> Array:
        rows = np.arange(batch.reward.size)

        def values(observations: Array) -> Array:
            """Return the older network's values of the actions that are best by the newer one."""
            inputs = observations.reshape(len(rows), -1)
            best = self.network.forward(online, inputs)[-1].argmax(axis=1)
            chosen: Array = self.network.forward(target, inputs)[-1][rows, best]
            return chosen.reshape(batch.reward.shape) + self.environment.mean_reward

        before = values(batch.observation)
        gains = vtrace(before, values(batch.next_observation), np.ones_like(before), batch)
        targets = (before + gains).ravel() - self.environment.mean_reward
        layers = self.network.forward(online, batch.observation.reshape(len(rows), -1))
        by_outputs = np.zeros_like(layers[-1])
        errors = layers[-1][rows, batch.action.ravel()] - targets
        by_outputs[rows, batch.action.ravel()] = errors.clip(-1, 1) / len(rows)
        return self.network.backward(online, layers, by_outputs)[1]


@dataclass
class Impala(Agent):
    """IMPALA. The network has one more output: the observation's value, less the mean reward."""

    name = "impala"
    environment: Environment
    network: Network
    item_length: int = 32
    batch_size: int = 4

    def make_table(self) -> lp.replay.Table:
        return lp.replay.Table.queue(TABLE, 8)

    def explore(self, outputs: Array, n_steps: int, rng: np.random.Generator) -> tuple[int, float]:
        chances = softmax(outputs[:-1])
        action = int(rng.choice(len(chances), p=chances))
        return action, float(chances[action])

    def gradient(self, online: Array, target: Array, batch: Steps) -> Array:
        shape = batch.reward.shape
        inputs = batch.observation.reshape(batch.reward.size, -1)
        layers = self.network.forward(online, inputs)
        after = self.network.forward(online, batch.next_observation.reshape(inputs.shape))[-1]
        chances = softmax(layers[-1][:, :-1])
        choices = np.eye(chances.shape[1])[batch.action.ravel()]
        ratios = (chances * choices).sum(axis=1).reshape(shape) / batch.chance
        values = layers[-1][:, -1].reshape(shape) + self.environment.mean_reward
        next_values = after[:, -1].reshape(shape) + self.environment.mean_reward
        gains = vtrace(values, next_values, ratios, batch).reshape(-1, 1)
        logs = np.log(chances)
        entropy = -(chances * logs).sum(axis=1, keepdims=True)
        by_scores = (chances - choices) * gains + ENTROPY * chances * (logs + entropy)
        by_outputs = np.hstack([by_scores, -gains]) / len(inputs)
        return self.network.backward(online, layers, by_outputs)[1]


def vtrace(values: Array, next_values: Array, ratios: Array, batch: Steps) -> Array:
    """Return how much V-trace's targets are above the values, which is how much better the actions were.

    If all ratios are 1, the targets are the returns up to the end of the episode or item.

    Args:
        ratios: The chance of each action by the learner's policy, divided by its chance when it was taken.
    """
    ratios = ratios.clip(max=1)
    gains = np.zeros_like(values)
    later = np.zeros(len(values))
    for t in reversed(range(values.shape[1])):
        following = next_values[:, t] + np.where(batch.is_last[:, t], 0.0, later)
        expected = (1 - DISCOUNT) * batch.reward[:, t] + DISCOUNT * batch.discount[:, t] * following
        later = ratios[:, t] * (expected - values[:, t])
        gains[:, t] = later
    return gains
