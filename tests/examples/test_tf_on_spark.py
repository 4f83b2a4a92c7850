from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import launchpad as lp
from examples._shared.data import Array, Data
from examples._shared.networks import Dense
from examples.systems.tf_on_spark import claims
from examples.systems.tf_on_spark.algorithm import Context, Id, Row
from examples.systems.tf_on_spark.claims import Ran
from examples.systems.tf_on_spark.main_fun import train, train_alone
from examples.systems.tf_on_spark.nodes import Job, Worked, rows
from examples.systems.tf_on_spark.program import make_program
from examples.systems.tf_on_spark.servers import (
    Ledger,
    NotAllRegistered,
    ParameterServer,
    Reservations,
)
from tests.examples.conftest import assert_refused
from tests.waiting import until

NETWORK = Dense((4, 3))
IMAGES = np.random.default_rng(0).random((8, 4))
PARTITIONS = [[(image, i % 3) for i, image in enumerate(IMAGES[part::2])] for part in range(2)]
JOB = Job(train, NETWORK, PARTITIONS, NETWORK.first_parameters(), feeders=2)


class NoSteps:
    """A parameter server of a job that trains nothing."""

    def begin(self, worker: int) -> tuple[Array, int, list[Id]]:
        return np.zeros(0), 0, []

    def push(self, *args: Any) -> tuple[Array, int]:
        return np.zeros(0), 0


def test_a_reservation_that_is_not_complete_in_time_names_who_is_absent() -> None:
    server = Reservations(["ps", "worker 0", "worker 1", "worker 2"], limit_s=0.01)

    with pytest.raises(NotAllRegistered, match=r"s: ps, worker 0, worker 2; registered: worker 1$"):
        asyncio.run(server.register("worker 1", None))


def test_a_batch_whose_rows_have_not_one_result_each_is_refused() -> None:
    context = Context(0, lambda n: [Row((0, 0, i), i) for i in range(n)], list, NoSteps())
    next(context.batches(2))

    with pytest.raises(ValueError, match="shorter"):
        context.batch_results(["a"])


def test_a_row_that_comes_again_is_left_out() -> None:
    batches = iter([[0, 1], [0, 1], [1, 2], []])
    context = Context(0, lambda n: [Row((0, 0, i), i) for i in next(batches)], list, NoSteps())

    assert list(context.batches(2)) == [[0, 1], [2]]


def test_what_an_attempt_has_pushed_that_died_before_the_step_was_complete_is_pushed_again(
    tmp_path: Path,
) -> None:
    first, again, other = [(0, 0, 0)], [(0, 0, 1)], [(0, 1, 0), (0, 1, 1)]
    with lp.testing.worker("ps", state=tmp_path), ThreadPoolExecutor(2) as pool:
        server: Any = ParameterServer(np.zeros(2), 2, None, None)  # type: ignore[arg-type]
        pushed = pool.submit(server.push, 0, 0, np.ones(2), first)
        until(lambda: 0 in server._state._given)

        assert server.begin(0)[1:] == (0, [])
        pushed_again = pool.submit(server.push, 0, 0, np.full(2, 5.0), again)
        parameters, n_rows = server.push(1, 0, np.full(2, 2.0), other)

        assert pushed.result(60)[1] == pushed_again.result(60)[1] == n_rows == 3
        assert server.ledger() == [[again, other]]
        assert server.begin(0)[1:] == (1, again)
    assert parameters.tolist() == [3, 3]  # (1 * 5 + 2 * 2) / 3


def test_checks_refuse_what_is_nearly_right() -> None:
    ledger = [[[(0, worker, i), (0, worker, i + 1)] for worker in range(2)] for i in (0, 2)]
    batches = [[PARTITIONS[n][i] for ids in step for _, n, i in ids] for step in ledger]
    alone, losses = train_alone(NETWORK, batches)
    queue = lp.QueueStats(9, 9, 0, 0, 8, 0, 1, 0, 0, 64, (), is_cancelled=True)
    held_out = Data(IMAGES, NETWORK.forward(alone, IMAGES)[-1].argmax(axis=1))
    few = replace(JOB, args=3, epochs=100)
    results = [((0, worker, i), _class(alone, worker, i)) for worker in range(2) for i in range(4)]

    def ran(job: Job, attempts: Sequence[int] = (2, 2, 2), **changes: Any) -> Ran:
        workers = [Worked(None, n, replace(queue, **changes), []) for n in attempts[:2]]
        return Ran(job, workers, [attempts[2]])

    def learned(ledger: Ledger, parameters: Array = alone, is_pushed: bool = False) -> Ran:
        worker = Worked((parameters, losses), 1, None, ledger)
        return Ran(replace(JOB, is_pushed=is_pushed), [worker] * 2, [])

    def inferred(*results: Any) -> Ran:
        job = replace(JOB, parameters=alone)
        return Ran(job, [Worked(list(results), 1, None, [])], [])

    claims.check_rows(learned(ledger))
    claims.check_rows(learned(ledger[::-1], is_pushed=True))
    claims.check_killed(ran(JOB))
    claims.check_bounded(ran(JOB))
    claims.check_learned(learned(ledger), held_out)
    claims.check_enough(ran(few, put=100))
    claims.check_inferred(inferred(*results))

    assert_refused(
        lambda: claims.check_rows(learned(ledger[::-1])),
        lambda: claims.check_rows(learned(ledger[:1], is_pushed=True)),
        lambda: claims.check_rows(learned([*ledger, ledger[0]], is_pushed=True)),
        lambda: claims.check_killed(ran(JOB, (1, 2, 2))),
        lambda: claims.check_killed(ran(JOB, (2, 2, 1))),
        lambda: claims.check_killed(ran(JOB, redelivered=0)),
        lambda: claims.check_bounded(ran(JOB, most_waiting=65)),
        lambda: claims.check_bounded(ran(JOB, most_waiting=63)),
        lambda: claims.check_learned(learned(ledger, alone + 1e-11), held_out),
        lambda: claims.check_learned(learned(ledger[:1]), held_out),
        lambda: claims.check_learned(learned(ledger), Data(IMAGES, (held_out.targets + 1) % 3)),
        lambda: claims.check_enough(ran(few, put=137)),
        lambda: claims.check_enough(ran(few, put=100, is_cancelled=False)),
        lambda: claims.check_inferred(inferred(results[1], results[0], *results[2:])),
        lambda: claims.check_inferred(inferred(*results[1:])),
    )


def _class(parameters: Array, partition: int, i: int) -> int:
    image, _ = PARTITIONS[partition][i]
    return int(NETWORK.forward(parameters, image[None])[-1].argmax())


@pytest.mark.slow
@pytest.mark.spark
def test_tasks_of_spark_push_their_partitions_of_an_rdd(spark_context: Any) -> None:
    job = replace(JOB, has_feeders=False)
    rdd = spark_context.union([spark_context.parallelize(each, 1) for each in PARTITIONS])

    with lp.launch(make_program(job), "local_mp") as running, ExitStack() as stack:
        queues = running.clients("input")

        def push(partition: Iterable[Any]) -> None:
            from pyspark import TaskContext

            number = TaskContext.get().partitionId()  # type: ignore[union-attr]
            queues[job.worker_of(number)].put_from(rows(0, number, list(partition)))

        for queue in queues:
            stack.enter_context(queue.producer())  # this script; it closes after all tasks
        rdd.foreachPartition(push)
        stack.close()
        claims.check_rows(Ran(job, running.results("worker"), []))
