"""Workers: each computes gradients on its slice of every batch. Their code is the same in all modes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

import launchpad as lp
from examples._shared.data import Array
from examples._shared.problem import Problem
from examples.ps.shards import Report, Shard


@dataclass(frozen=True)
class Trained:
    """The result of a worker.

    Attributes:
        pushed: The sum of the gradients that it has pushed.
        parameters: What all workers have learned.
        losses: The mean loss on its slice, at each step of this attempt.
        shards: What each shard says of itself at the end.
    """

    pushed: Array
    parameters: Array
    losses: list[float]
    shards: list[Report]

    @property
    def staleness(self) -> int:
        return max(shard.staleness for shard in self.shards)


class Worker:
    """A worker. The mode of the shards decides whether it waits for others.

    Args:
        lead: By how many steps others may overtake the last worker half-way, while it straggles.
    """

    def __init__(
        self, problem: Problem, shards: Sequence[lp.CourierClient[Shard]], lead: int = 0
    ) -> None:
        self._problem = problem
        self._shards = shards
        self._lead = lead

    def run(self) -> Trained:
        me = lp.current()
        problem = self._problem
        if not me.is_resumed:
            first = pull(self._shards)
            me.save((0, first, np.zeros_like(first)), keep=1)
        first_step, parameters, pushed = me.load()
        losses = []
        for step in range(first_step, problem.steps):
            part = problem.slice(step, me.replica_index)
            loss, gradient = problem.loss_and_gradient(parameters, part)
            pushed += gradient
            losses.append(loss)
            is_last = me.replica_index == problem.workers - 1
            if self._lead and is_last and step == problem.steps // 2:
                self._shards[0].straggle(me.replica_index, min(self._lead, problem.steps - step))
            # Push each shard its part of the gradient, all at once.
            parts = lp.parts(np.array_split(gradient, len(self._shards)))
            answers = lp.scatter(self._shards).push(me.replica_index, step, parts)
            parameters = np.concatenate(answers)
            me.save((step + 1, parameters, pushed), keep=1)
            if me.replica_index == 0 and step % 100 == 0:
                print(f"step {step}: loss {loss:.3f}")
        lp.barrier("trained")
        return Trained(pushed, pull(self._shards), losses, lp.broadcast(self._shards).report())


def pull(shards: Sequence[lp.CourierClient[Shard]]) -> Array:
    """Return all parameters, put together from the shards."""
    return np.concatenate(lp.broadcast(shards).parameters())
