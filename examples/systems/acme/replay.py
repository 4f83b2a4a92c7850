"""A replay for one process. In a program lp.ReplayNode serves the same table."""

from typing import Any

import numpy as np

import launchpad as lp
from examples.systems.acme.algorithm import Agent, Steps


class LocalReplay:
    """A replay with the methods of lp.replay.ReplayClient that agents use. It never waits."""

    def __init__(self, agent: Agent, seed: int) -> None:
        self._batch_size = agent.batch_size
        self._table = agent.make_table()
        self._table.seed(seed)

    def insert(self, data: Steps, priorities: Any) -> None:
        self._table.insert(self._table.rate_limiter.inserts, 1.0, data)

    def sample_batch(self, table: str, batch_size: int) -> lp.replay.ReplaySample:
        samples = [self._table.sample() for _ in range(batch_size)]
        *info, items = zip(*samples, strict=True)
        data = Steps(*map(np.array, zip(*items, strict=True)))
        return lp.replay.ReplaySample(lp.replay.SampleInfo(*map(np.array, info)), data)

    def can_sample(self) -> bool:
        """True if the rate limiter lets a batch through."""
        limiter = self._table.rate_limiter
        return limiter.can_sample() and limiter.diff - self._batch_size >= limiter.min_diff

    def info(self) -> dict[str, lp.replay.TableInfo]:
        return {self._table.name: self._table.info()}
