"""The planner: the plan whose slowest stage takes the least time, from a profile of the layers.

A stage of m replicas takes 1/m of the time of its layers, or of its all-reduce if that takes longer: both go
on at once. Between two stages an activation goes forward and its gradient back. Source: section 3.1 of the
paper, with the same bandwidth between all machines, and a ring for the all-reduce.
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
    """Return how long an activation takes to the stage that begins at this layer, and its gradient back."""
    return 2 * profile.outputs[begin - 1] / bandwidth if begin else 0.0


def slowest_s(profile: Profile, plan: Plan, bandwidth: float) -> float:
    """Return the time per minibatch of the slowest stage, or transfer between two stages, of a plan."""
    times = []
    ends = accumulate(part.layers for part in plan)
    for (layers, replicas), end in zip(plan, ends, strict=True):
        times.append(stage_s(profile, end - layers, end, replicas, bandwidth))
        times.append(transfer_s(profile, end - layers, bandwidth))
    return max(times)


def best_plan(profile: Profile, machines: int, bandwidth: float) -> tuple[float, Plan]:
    """Return the time per minibatch of the best plan's slowest stage, and that plan."""

    @functools.cache
    def best(end: int, machines: int) -> tuple[float, tuple[Part, ...]]:
        """Return the best plan for the layers before `end`: one stage, or a best plan and a last stage."""
        single = (Part(end, machines),)
        plans: list[tuple[float, tuple[Part, ...]]] = [
            (stage_s(profile, 0, end, machines, bandwidth), single)
        ]
        for begin in range(1, end):
            for replicas in range(1, machines):
                before_s, before = best(begin, machines - replicas)
                last_s = stage_s(profile, begin, end, replicas, bandwidth)
                slowest = max(before_s, transfer_s(profile, begin, bandwidth), last_s)
                plans.append((slowest, (*before, Part(end - begin, replicas))))
        return min(plans)

    return best(len(profile.seconds), machines)
