"""V-trace: what values should be, from an episode that another policy has acted."""

from typing import NamedTuple

from examples._shared.digits import Array


class VTrace(NamedTuple):
    """Of each step: its observation's value as it should be, and how much better the action was than that."""

    targets: Array
    advantages: Array


def vtrace(values: Array, rewards: Array, discounts: Array, ratios: Array) -> VTrace:
    """Return the targets, from the last step to the first.

    Args:
        values: Of all observations, also of the one after the last step.
        ratios: The chance of each action by the learner's policy, divided by that when it was taken.
    """
    ratios = ratios.clip(max=1)
    deltas = ratios * (rewards + discounts * values[1:] - values[:-1])
    targets = values.copy()
    for t in reversed(range(len(rewards))):
        targets[t] += deltas[t] + discounts[t] * ratios[t] * (targets[t + 1] - values[t + 1])
    return VTrace(targets[:-1], ratios * (rewards + discounts * targets[1:] - values[:-1]))
