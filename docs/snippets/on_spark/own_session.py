"""A program beside data that Spark has: in the script's own session, whose jobs run on."""

from __future__ import annotations

from typing import Any

import launchpad as lp
from pyspark import SparkContext

context = SparkContext("local[4]")


class Sum:
    def __init__(self) -> None:
        self.value = 0

    def add(self, numbers: list[int]) -> None:
        self.value += sum(numbers)

    def get(self) -> int:
        return self.value


program = lp.Program("sums")
program.add_node(lp.CourierNode(Sum), label="sum", replicas=3)

# part: launch
with lp.launch(program, "spark", hosts=2) as running:  # two of the session's slots are hosts
    sums: list[Any] = running.clients("sum")
    for part in context.parallelize(range(100), 5).glom().toLocalIterator():  # in the others
        sums[part[0] % 3].add(part)
    print(sum(each.get() for each in sums))
# end
context.stop()
