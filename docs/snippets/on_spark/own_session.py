"""A program beside data that Spark has: in the script's own session, whose jobs run on."""

from __future__ import annotations

from typing import Any

import launchpad as lp
from pyspark.sql import SparkSession

spark = SparkSession.builder.master("local[4]").getOrCreate()


class Mean:
    def __init__(self) -> None:
        self.total, self.count = 0.0, 0

    def add(self, values: list[float]) -> None:
        self.total, self.count = self.total + sum(values), self.count + len(values)

    def get(self) -> float:
        return self.total / self.count


program = lp.Program("mean")
with program.group("mean"):
    for _ in range(3):
        program.add_node(lp.CourierNode(Mean))

# part: launch
with lp.launch(program, "spark", hosts=2) as running:  # two of the session's slots are hosts
    means: list[Any] = running.clients("mean")
    for row in spark.range(100).toLocalIterator():  # a job of Spark's, in the others
        means[row.id % 3].add([row.id])
    print([mean.get() for mean in means])
# end
spark.stop()
