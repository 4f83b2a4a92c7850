"""IMPALA: an actor-critic that learns from a queue of what actors with slightly older policies have done.

Espeholt et al. 2018, https://arxiv.org/abs/1802.01561.
"""

import time
from typing import Any, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from examples._shared import networks
from examples._shared.data import Array
from examples.systems.acme.adam import Adam
from examples.systems.acme.algorithm import Variables
from examples.systems.acme.policy import SCALE, WIDTHS, Scores
from examples.systems.acme.variable_client import VariableClient
from examples.systems.acme.vtrace import vtrace

VALUE_WIDTHS = (4, 64, 1)
N_POLICY = networks.first_parameters(WIDTHS).size  # parameters; those of the critic follow
DISCOUNT = 0.99
UNROLL = 32
BATCH = 4
RATE = 2e-3
ENTROPY = 0.001


class Unroll(NamedTuple):
    """Some steps of an episode, what came after the last, and how likely the actions were."""

    observations: Array
    actions: npt.NDArray[np.int64]
    rewards: Array
    discounts: Array
    chances: Array


class Queue(Protocol):
    """The methods of lp.Queue that IMPALA uses."""

    def put(self, item: Unroll) -> bool: ...

    def get(self) -> Unroll: ...


def softmax(scores: Array) -> Array:
    """Return the chances of the actions."""
    chances = np.exp(scores - scores.max(axis=-1, keepdims=True))
    result: Array = chances / chances.sum(axis=-1, keepdims=True)
    return result


class ImpalaLearner:
    """A learner. It makes better actions likelier, and moves its expectations towards V-trace's targets."""

    def __init__(self, queue: Queue, seed: int) -> None:
        self._queue = queue
        self.steps = 0
        parts = [
            networks.first_parameters(WIDTHS, seed),
            networks.first_parameters(VALUE_WIDTHS, seed),
        ]
        networks.matrices(WIDTHS, parts[0])[-1][:] = 0.0  # both actions are as likely
        networks.matrices(VALUE_WIDTHS, parts[1])[-1][-1] = 1.0  # as if the pole never fell
        self.parameters = np.concatenate(parts)
        self._adam = Adam(self.parameters.size, RATE)

    def get_variables(self) -> Variables:
        return Variables(self.parameters, self.steps, time.time())

    def step(self) -> None:
        unrolls = [self._queue.get() for _ in range(BATCH)]
        mean = np.mean([gradient(self.parameters, unroll) for unroll in unrolls], axis=0)
        self.steps += 1
        self.parameters = self.parameters + self._adam.change(mean, self.steps)

    def save(self) -> Any:
        return self.steps, self.parameters, self._adam.state

    def restore(self, saved: Any) -> None:
        self.steps, self.parameters, self._adam.state = saved


def gradient(parameters: Array, unroll: Unroll) -> Array:
    """Return the gradient of an unroll's loss: advantages of actions, entropy, and errors of values."""
    policy, critic = np.split(parameters, [N_POLICY])
    inputs = unroll.observations / SCALE
    rows = np.arange(len(unroll.actions))
    by_layer = networks.forward(WIDTHS, policy, inputs[:-1])
    of_value = networks.forward(VALUE_WIDTHS, critic, inputs)
    chances = softmax(by_layer[-1])
    values = of_value[-1][:, 0]
    ratios = chances[rows, unroll.actions] / unroll.chances
    rewards = (1 - DISCOUNT) * unroll.rewards
    discounts = DISCOUNT * unroll.discounts
    targets, advantages = vtrace(values, rewards, discounts, ratios)
    choices = np.eye(2)[unroll.actions]
    logs = np.log(chances)
    entropy = -(chances * logs).sum(axis=1, keepdims=True)
    by_scores = (chances - choices) * advantages[:, np.newaxis]
    by_scores += ENTROPY * chances * (logs + entropy)
    by_values = np.append(values[:-1] - targets, 0.0)[:, np.newaxis]
    of_policy = networks.backward(WIDTHS, policy, by_layer, by_scores / UNROLL)[1]
    of_critic = networks.backward(VALUE_WIDTHS, critic, of_value, by_values / UNROLL)[1]
    return np.concatenate([of_policy, of_critic])


class ImpalaActor:
    """An actor. It draws actions by their chances, and puts one unroll after the other into the queue."""

    def __init__(self, variables: VariableClient, queue: Queue, seed: int) -> None:
        self._variables = variables
        self._queue = queue
        self._scores = Scores(variables)
        self._rng = np.random.default_rng(seed)

    def observe_first(self, observation: Array) -> None:
        self._observations: list[Array] = [observation]
        self._steps: list[tuple[int, float, float, float]] = []

    def select_action(self, observation: Array) -> int:
        chances = softmax(self._scores(observation))
        action = int(self._rng.random() >= chances[0])
        self._chance = float(chances[action])
        return action

    def observe(
        self, action: int, reward: float, observation: Array, discount: float, is_last: bool
    ) -> None:
        self._observations.append(observation)
        self._steps.append((action, reward, discount, self._chance))
        if is_last or len(self._steps) == UNROLL:
            actions, rewards, discounts, chances = map(np.array, zip(*self._steps, strict=True))
            observations = np.array(self._observations)
            self._queue.put(Unroll(observations, actions, rewards, discounts, chances))
            self._variables.take()
            self.observe_first(observation)

    def update(self) -> None:
        """Do nothing: `observe` takes newer variables after each unroll."""
