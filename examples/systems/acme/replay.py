"""The replay's table, and a replay for one process. In a program lp.ReplayNode serves the same table."""

from collections import deque
from collections.abc import Callable
from typing import Any

import numpy as np

import launchpad as lp
from examples.systems.acme.dqn import BATCH_SIZE

SAMPLES_PER_INSERT = 16.0
MIN_SIZE = 500
ERROR_BUFFER = 16 * BATCH_SIZE


def make_table() -> lp.replay.Table:
    """Return the table of DQN's transitions."""
    ratio = lp.replay.SampleToInsertRatio(SAMPLES_PER_INSERT, MIN_SIZE, ERROR_BUFFER)
    uniform = lp.replay.Uniform()
    fifo = lp.replay.Fifo()
    return lp.replay.Table("transitions", uniform, fifo, max_size=30_000, rate_limiter=ratio)


class LocalReplay:
    """A replay with the methods of lp.replay.ReplayClient that DQN uses, and the same table behind them."""

    def __init__(self, seed: int) -> None:
        self.table = make_table()
        self._n_inserts = 0
        self.table.seed(seed)

    def n_step_writer(self, table: str, n: int, discount: float) -> "LocalWriter":
        return LocalWriter(self._insert, n, discount)

    def sample_batch(self, table: str, num_samples: int) -> lp.replay.ReplaySample:
        """Return a batch. Raise IndexError if the table is empty; this method doesn't wait."""
        samples = [self.table.sample() for _ in range(num_samples)]
        columns = map(np.array, zip(*(sample.data for sample in samples), strict=True))
        info = map(np.array, zip(*(sample[:5] for sample in samples), strict=True))
        return lp.replay.ReplaySample(lp.replay.SampleInfo(*info), lp.replay.Transition(*columns))

    def can_sample(self) -> bool:
        """True if the limiter lets a batch through."""
        limiter = self.table.rate_limiter
        return limiter.can_sample() and limiter.diff - BATCH_SIZE >= limiter.min_diff

    def info(self) -> dict[str, lp.replay.TableInfo]:
        return {"transitions": self.table.info()}

    def _insert(self, transition: lp.replay.Transition) -> None:
        self.table.insert(self._n_inserts, 1.0, transition)
        self._n_inserts += 1


class LocalWriter:
    """A writer that makes the transitions that lp.replay.NStepWriter makes."""

    def __init__(
        self, insert: Callable[[lp.replay.Transition], None], n: int, discount: float
    ) -> None:
        self._insert = insert
        self._discount = discount
        self._recent: deque[tuple[Any, Any, float, float]] = deque(maxlen=n)

    def add_first(self, observation: Any) -> None:
        self._before = observation

    def add(
        self,
        action: Any,
        reward: Any,
        next_observation: Any,
        discount: Any = 1.0,
        is_last: bool = False,
    ) -> None:
        self._recent.append((self._before, action, reward, discount))
        self._before = next_observation
        self._write()
        if is_last:
            while len(self._recent) > 1:
                self._recent.popleft()
                self._write()
            self._recent.clear()

    def _write(self) -> None:
        """Insert a transition over all recent steps."""
        observation, action, total, product = self._recent[0]
        for _, _, reward, discount in list(self._recent)[1:]:
            total += self._discount * product * reward
            product *= self._discount * discount
        self._insert(lp.replay.Transition(observation, action, total, product, self._before))
