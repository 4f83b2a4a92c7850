"""The truth, from one process: all plans and their times, and the equation of delayed weights."""

from collections.abc import Iterator

import numpy as np

from examples._shared.data import Array
from examples._shared.problem import Problem
from examples._shared.profiler import Profile
from examples.systems.pipedream.algorithm import Part, Plan, cut


def all_plans(layers: int, machines: int) -> Iterator[Plan]:
    """Yield each way to cut the layers into stages and to share the machines out among the stages."""
    yield (Part(layers, machines),)
    for own, replicas in np.ndindex(layers - 1, machines - 1):
        for following in all_plans(layers - own - 1, machines - replicas - 1):
            yield (Part(own + 1, replicas + 1), *following)


def slowest_s(profile: Profile, plan: Plan, bandwidth: float) -> float:
    """Return the time per minibatch of the slowest stage, or transfer between two stages, of a plan.

    A stage of m replicas takes max(Σ seconds, 2(m−1)/m · Σ weights / bandwidth) / m.
    """
    times = []
    end = 0
    for layers, m in plan:
        if end:
            times.append(2 * profile.outputs[end - 1] / bandwidth)
        own = slice(end, end + layers)
        all_reduce_s = 2 * (m - 1) / m * sum(profile.weights[own]) / bandwidth
        times.append(max(sum(profile.seconds[own]), all_reduce_s) / m)
        end += layers
    return max(times)


def versions(plan: Plan, stage: int) -> int:
    """Return how many versions a stage holds: K − k without replicas; else rounds of its replicas."""
    replicas = [part.replicas for part in plan]
    return -(-sum(replicas[stage:]) // replicas[stage])


def train(problem: Problem, plan: Plan) -> list[Array]:
    """Return each stage's last weights of w(t+1) = w(t) − rate · ∇f(w_1(t−n+1), w_2(t−n+2), …, w_n(t)).

    The k-th of n stages is late by n − k minibatches. A stage of R replicas is late by rounds of R
    minibatches.
    """
    history = [{0: own} for own in cut(problem.network, plan, problem.first_parameters)]
    gradients = []
    for t in range(problem.steps):
        used = []
        for k, (_, own) in enumerate(plan):
            version = max(0, t // own - versions(plan, k) + 1) * own
            used.append(history[k][version])
        gradient = problem.loss_and_gradient(np.concatenate(used), problem.batch(t))[1]
        gradients.append(cut(problem.network, plan, gradient))
        for k, (_, own) in enumerate(plan):
            if (t + 1) % own == 0:
                mean = np.mean([parts[k] for parts in gradients[-own:]], axis=0)
                history[k][t + 1] = history[k][t + 1 - own] - problem.learning_rate * mean
    return [of_stage[problem.steps] for of_stage in history]
