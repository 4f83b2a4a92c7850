"""The planner: the plan whose slowest stage takes the least time, from a profile of the layers.

A stage of m replicas takes 1/m of the time of its layers, or of its all-reduce, which goes on beside.
Between two stages an activation goes forth and its gradient back. Source: section 3.1 of the paper, with the
same bandwidth between all machines, and a ring for the all-reduce.
"""

import functools
from itertools import accumulate

from examples.systems.pipedream.algorithm import Part, Plan
from examples.systems.pipedream.profiler import Profile


def stage_s(profile: Profile, begin: int, end: int, replicas: int, bandwidth: float) -> float:
    """Return how long a stage of the layers from `begin` to before `end` takes per minibatch."""
    all_reduced = 2 * (replicas - 1) / replicas * sum(profile.weights[begin:end])
    return max(sum(profile.seconds[begin:end]), all_reduced / bandwidth) / replicas


def transfer_s(profile: Profile, begin: int, bandwidth: float) -> float:
    """Return how long a minibatch is on its way to the stage that begins there, and its gradient back."""
    return 2 * profile.outputs[begin - 1] / bandwidth if begin else 0.0


def slowest_s(profile: Profile, plan: Plan, bandwidth: float) -> float:
    """Return how long the slowest stage of a plan, or way between two of them, takes per minibatch."""
    times, ends = [], accumulate(part.layers for part in plan)
    for (layers, replicas), end in zip(plan, ends, strict=True):
        times.append(stage_s(profile, end - layers, end, replicas, bandwidth))
        times.append(transfer_s(profile, end - layers, bandwidth))
    return max(times)


def best_plan(profile: Profile, machines: int, bandwidth: float) -> tuple[float, Plan]:
    """Return how long the slowest stage of the best plan takes per minibatch, and that plan."""

    @functools.cache
    def best(end: int, machines: int) -> tuple[float, tuple[Part, ...]]:
        """Of the layers before `end`: all in one stage, or the best of those before a last stage, and it."""
        whole = (Part(end, machines),)
        found: list[tuple[float, tuple[Part, ...]]] = [
            (stage_s(profile, 0, end, machines, bandwidth), whole)
        ]
        for begin in range(1, end):
            for replicas in range(1, machines):
                before_s, before = best(begin, machines - replicas)
                last_s = stage_s(profile, begin, end, replicas, bandwidth)
                slowest = max(before_s, transfer_s(profile, begin, bandwidth), last_s)
                found.append((slowest, (*before, Part(end - begin, replicas))))
        return min(found)

    return best(len(profile.seconds), machines)
