"""Faults: a partition whose feeder dies, and a `main_fun` whose workers die. Each dies once."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import count
from typing import Any

import launchpad as lp
from examples.systems.tf_on_spark.algorithm import Context, Row
from examples.systems.tf_on_spark.main_fun import train


@dataclass(frozen=True)
class Deadly(Sequence[Any]):
    """A partition that kills its feeder in the middle."""

    rows: Sequence[Any]

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, i: Any) -> Any:
        if i == len(self) // 2 and lp.current().attempt == 1:
            lp.testing.crash()
        return self.rows[i]


def train_and_die(args: Any, context: Context) -> Any:
    """Train, and kill the worker at its 20th batch.

    The first worker dies before it takes this batch, when the change of the batch before has been added, but
    its rows are not acknowledged yet. The others die after they have taken the batch.
    """
    take = context.take
    numbers = count(1)

    def take_or_die(n: int) -> list[Row]:
        is_due = next(numbers) == 20 and lp.current().attempt == 1
        rows = [] if is_due and context.worker == 0 else take(n)
        if is_due:
            lp.testing.crash()
        return rows

    context.take = take_or_die
    return train(args, context)
