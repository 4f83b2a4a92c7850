"""Feeders that are tasks of Spark: each pushes its partition of an RDD into a worker's queue."""

from collections.abc import Iterable
from contextlib import ExitStack
from dataclasses import replace

import launchpad as lp
from examples._shared.data import Array
from examples._shared.spark import session
from examples.systems.tf_on_spark.algorithm import Row
from examples.systems.tf_on_spark.job import Job
from examples.systems.tf_on_spark.program import Ran, run


def run_by_spark(job: Job) -> Ran:
    """Run a job for one epoch on an RDD with these partitions."""
    # A queue must have room for a whole partition: tasks run in any order, and workers train in step.
    job = replace(
        job, has_feeders=False, feeders=job.workers, epochs=1, maxsize=max(map(len, job.partitions))
    )

    with session() as spark:
        context = spark.sparkContext
        pairs = [
            list(zip(each.inputs, each.targets.tolist(), strict=True)) for each in job.partitions
        ]
        rdd = context.union([context.parallelize(part, 1) for part in pairs])

        def push_all(running: lp.Running) -> None:
            queues: list[lp.Queue[Row]] = running.clients("input")
            of_partition = [queues[job.worker_of(i)] for i in range(len(pairs))]
            with ExitStack() as stack:
                for queue in queues:
                    stack.enter_context(queue.producer())  # this script; it closes after all tasks
                rdd.foreachPartition(lambda part: push(part, of_partition))

        return run(job, push_all)


def push(pairs: Iterable[tuple[Array, int]], of_partition: list[lp.Queue[Row]]) -> None:
    """Push the rows of a partition. This runs in a process of Spark's."""
    from pyspark import TaskContext

    context = TaskContext.get()
    assert context is not None  # it is a task
    number = context.partitionId()
    of_partition[number].put_from(
        Row((0, number, i), image, label) for i, (image, label) in enumerate(pairs)
    )
