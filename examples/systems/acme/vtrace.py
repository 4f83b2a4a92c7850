"""V-trace: the targets of values, from an episode that another policy has played."""

from typing import NamedTuple

from examples._shared.data import Array


class VTrace(NamedTuple):
    """For each step: the target of its observation's value, and how much better the action was."""

    targets: Array
    advantages: Array


def vtrace(values: Array, rewards: Array, discounts: Array, ratios: Array) -> VTrace:
    """Return the targets and advantages. They are computed from the last step to the first.

    Args:
        values: The values of all observations, with the one after the last step.
        ratios: The chance of each action by the learner's policy, divided by its chance when it was taken.
    """
    ratios = ratios.clip(max=1)
    deltas = ratios * (rewards + discounts * values[1:] - values[:-1])
    targets = values.copy()
    for t in reversed(range(len(rewards))):
        targets[t] += deltas[t] + discounts[t] * ratios[t] * (targets[t + 1] - values[t + 1])
    return VTrace(targets[:-1], ratios * (rewards + discounts * targets[1:] - values[:-1]))
