"""The truth, from one process: all plans, and the equation of delayed weights."""

from collections.abc import Iterator

import numpy as np

from examples._shared.data import Array, Data
from examples._shared.networks import Widths, first_parameters, gradient
from examples.systems.pipedream.algorithm import Part, Plan, cut


def all_plans(layers: int, machines: int) -> Iterator[Plan]:
    """Yield each way to cut the layers into stages and to share the machines out among the stages."""
    yield (Part(layers, machines),)
    for own, replicas in np.ndindex(layers - 1, machines - 1):
        for following in all_plans(layers - own - 1, machines - replicas - 1):
            yield (Part(own + 1, replicas + 1), *following)


def train(widths: Widths, plan: Plan, batches: list[Data], rate: float, sync: bool) -> Array:
    """Return the last weights of w(t+1) = w(t) − rate · ∇f(w_1(t−n+1), w_2(t−n+2), …, w_n(t)).

    The k-th of n stages is late by n − k minibatches. A stage of R replicas is late by rounds of R
    minibatches: one round fewer than each replica has minibatches in flight. With vertical `sync` no stage is
    ahead of the stage before.
    """
    versions = [{0: own} for _, own in cut(widths, plan, first_parameters(widths))]
    replicas = [part.replicas for part in plan]
    gradients = []
    for t, batch in enumerate(batches):
        used: list[int] = []
        for k, own in enumerate(replicas):
            late = -(-sum(replicas[k:]) // own) - 1
            newest = max(0, t // own - late) * own
            used.append(min(newest, used[-1] // own * own) if sync and k else newest)
        weights = np.concatenate([versions[k][version] for k, version in enumerate(used)])
        gradients.append(cut(widths, plan, gradient(widths, weights, batch)))
        for k, own in enumerate(replicas):
            if (t + 1) % own == 0:
                mean = np.mean([parts[k][1] for parts in gradients[-own:]], axis=0)
                versions[k][t + 1] = versions[k][t + 1 - own] - rate * mean
    return np.concatenate([own[len(batches)] for own in versions])
