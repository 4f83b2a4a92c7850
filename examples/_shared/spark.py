"""Data from Spark: each partition of an RDD becomes that of a worker."""

import os
import sys
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from examples._shared.data import Array, Data

SETTINGS: dict[str, Any] = {
    "spark.master": "local[2]",
    "spark.log.level": "ERROR",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
}


def partitions(rdd: Any) -> list[Data]:
    """Return the partitions of an RDD of pairs, an image and the digit that it shows."""

    def packed(pairs: Iterator[tuple[Array, int]]) -> Iterator[tuple[Array, list[int]]]:
        images, labels = zip(*pairs, strict=True)
        yield np.stack(images), list(labels)

    collected = rdd.mapPartitions(packed).collect()  # by Spark's own processes
    return [Data(images, np.array(labels)) for images, labels in collected]


def session() -> Any:
    """Return a session of Spark on this machine. Use it in a `with`, which closes it."""
    try:
        from pyspark.sql import SparkSession
    except ImportError as error:
        raise ImportError(
            "--spark needs pyspark: pip install 'launchpad-graph[spark]', and Java"
        ) from error
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    return SparkSession.builder.config(map=SETTINGS).getOrCreate()


def through_spark(lists: Sequence[Data]) -> list[Data]:
    """Put these lists into an RDD, one per partition, and return the partitions that come out of it."""
    with session() as spark:
        context = spark.sparkContext
        pairs = [zip(digits.inputs, digits.targets.tolist(), strict=True) for digits in lists]
        return partitions(context.union([context.parallelize(list(part), 1) for part in pairs]))
