"""Losses as the papers define them, sum by sum, without the code of the agents."""

from collections.abc import Callable
from typing import Any

import numpy as np

from examples._shared.data import Array
from examples.systems.acme.algorithm import Agent, Record, Steps

GAMMA = 0.99


def dqn_loss(agent: Agent, record: Record, target: Array) -> Callable[[Array], float]:
    """Return Huber's loss of Q(s, a) and the return up to Q'(s, argmax Q(s, ·)), where Q' is the target."""
    batch = record.batch

    def q(parameters: Array, observations: Array) -> Array:
        return agent.network.forward(parameters, observations)[-1] + agent.environment.mean_reward

    def value(observations: Array) -> Array:
        best = q(record.parameters, observations).argmax(axis=-1)
        return at(q(target, observations), best)

    ones = np.ones_like(batch.reward)
    targets = vtrace(value(batch.observation), value(batch.next_observation), ones, batch)[0]

    def loss(parameters: Array) -> float:
        errors = np.abs(at(q(parameters, batch.observation), batch.action) - targets)
        return float(np.where(errors < 1, errors**2 / 2, errors - 0.5).mean())

    return loss


def impala_loss(agent: Agent, record: Record, target: Array) -> Callable[[Array], float]:
    """Return the loss of sections 4.1 and 4.2: of the policy, of its entropy, and of the critic."""
    batch = record.batch

    def value(parameters: Array, observations: Array) -> Array:
        outputs = agent.network.forward(parameters, observations)[-1]
        return outputs[..., -1] + agent.environment.mean_reward

    before = value(record.parameters, batch.observation)
    after = value(record.parameters, batch.next_observation)
    ratios = chances(agent, record.parameters, batch) / batch.chance
    targets, advantages = vtrace(before, after, ratios, batch)

    def loss(parameters: Array) -> float:
        logs = log_chances(agent, parameters, batch.observation)
        entropy = -(np.exp(logs) * logs).sum(axis=-1).mean()
        of_policy = -(at(logs, batch.action) * advantages).mean()
        of_critic = ((value(parameters, batch.observation) - targets) ** 2).mean() / 2
        return float(of_policy + of_critic - 0.01 * entropy)

    return loss


LOSSES = {"dqn": dqn_loss, "impala": impala_loss}


def vtrace(values: Array, next_values: Array, ratios: Array, batch: Steps) -> tuple[Array, Array]:
    """Return V-trace's targets, by equation 1 of section 4.1, and the advantages of section 4.2."""
    rho = np.minimum(1, ratios)
    rewards = (1 - GAMMA) * batch.reward
    discounts = GAMMA * batch.discount
    deltas = rho * (rewards + discounts * next_values - values)
    targets = values.copy()
    next_targets = next_values.copy()
    for i, s in np.ndindex(values.shape):
        ends = [*np.flatnonzero(batch.is_last[i, s:]), values.shape[1] - 1 - s]
        for t in range(s, s + ends[0] + 1):
            targets[i, s] += np.prod(discounts[i, s:t] * rho[i, s:t]) * deltas[i, t]
        if s > 0 and not batch.is_last[i, s - 1]:
            next_targets[i, s - 1] = targets[i, s]
    return targets, rho * (rewards + discounts * next_targets - values)


def log_chances(agent: Agent, parameters: Array, observations: Array) -> Array:
    """Return the logarithms of the chances of all actions."""
    scores = agent.network.forward(parameters, observations)[-1][..., :-1]
    result: Array = scores - np.log(np.exp(scores).sum(axis=-1, keepdims=True))
    return result


def chances(agent: Agent, parameters: Array, batch: Steps) -> Array:
    """Return the chances of a batch's actions."""
    return np.exp(at(log_chances(agent, parameters, batch.observation), batch.action))


def at(outputs: Array, actions: Any) -> Array:
    """Return the output of the action of each step."""
    return np.take_along_axis(outputs, actions[..., np.newaxis], axis=-1)[..., 0]
