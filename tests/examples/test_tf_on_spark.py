from __future__ import annotations

import asyncio
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import launchpad as lp
from examples._shared.data import Array, Data
from examples.systems.tf_on_spark import claims
from examples.systems.tf_on_spark.algorithm import DataFeed, Row
from examples.systems.tf_on_spark.feeder import Fed
from examples.systems.tf_on_spark.job import Faults, Job
from examples.systems.tf_on_spark.main_fun import Args, gradient, infer
from examples.systems.tf_on_spark.oracle import train_alone
from examples.systems.tf_on_spark.parameter_server import Ledger, ParameterServer
from examples.systems.tf_on_spark.program import Ran
from examples.systems.tf_on_spark.reservation import NotAllRegistered, Reservations
from examples.systems.tf_on_spark.worker import Worked
from tests.examples.conftest import assert_refused
from tests.waiting import until

ARGS = Args((64, 10), np.zeros(650), batch_size=2)
PARTITION = Data(np.random.default_rng(0).random((5, 64)), np.arange(5))
JOB = Job(ARGS, [PARTITION, PARTITION], feeders=2)


def test_a_reservation_that_is_not_complete_in_time_names_who_is_absent() -> None:
    server = Reservations({"ps": 1, "worker": 3}, limit_s=0.01)

    with pytest.raises(NotAllRegistered, match=r"^ps 0, worker 0, worker 2 have .* worker 1$"):
        asyncio.run(server.register("worker", 1, None))
    with pytest.raises(ValueError, match="worker 3 does not belong to ps 0, worker 0, worker 1"):
        asyncio.run(server.register("worker", 3, None))


def test_a_batch_whose_rows_have_not_one_result_each_is_refused() -> None:
    rows = [Row((0, 0, i), PARTITION.inputs[i], i) for i in range(2)]
    feed = DataFeed(SimpleNamespace(take=lambda n: rows, cancel=None, answer=None))
    feed.next_batch(2)

    with pytest.raises(ValueError, match="1 results for a batch of 2 rows"):
        feed.batch_results(["a"])


def test_what_an_attempt_has_pushed_that_died_before_the_step_was_complete_is_pushed_again(
    tmp_path: Path,
) -> None:
    first, again, other = ([Row((0, 0, i), PARTITION.inputs[i], i)] for i in range(3))
    with lp.testing.worker("ps", state=tmp_path), ThreadPoolExecutor(2) as pool:
        server: Any = ParameterServer(ARGS, 2, None, None)  # type: ignore[arg-type]
        pushed = pool.submit(push, server, 0, first)
        until(lambda: 0 in server._state._given)

        assert server.begin(0) == []
        pushed_again = pool.submit(push, server, 0, again)
        parameters, n_rows = push(server, 1, other)

        assert pushed.result(60)[1] == pushed_again.result(60)[1] == n_rows == 2
        assert server.trained().ledger == [[[(0, 0, 1)], [(0, 0, 2)]]]
        assert server.begin(0) == [(0, 0, 1)]
    both = gradient(ARGS.widths, ARGS.parameters, [*again, *other])
    assert np.allclose(parameters, -ARGS.learning_rate * both / 2, rtol=0, atol=1e-15)


def push(server: ParameterServer, worker: int, rows: list[Row]) -> tuple[Any, int]:
    of_rows = gradient(ARGS.widths, ARGS.parameters, rows)
    return server.push(worker, 0, of_rows, [row.id for row in rows])


def test_checks_refuse_what_is_nearly_right() -> None:
    job = replace(JOB, partitions=[PARTITION[:4]] * 2)
    enough = replace(job, args=replace(ARGS, enough_at=3), epochs=100)
    killed, absent = replace(job, faults=Faults(kill_at=1)), replace(job, faults=Faults(absent=1))
    ledger = [[[(0, worker, i), (0, worker, i + 1)] for worker in range(2)] for i in (0, 2)]
    uneven = [[[(0, worker, i) for i in ids] for worker in range(2)] for ids in ((0, 1, 2), (3,))]
    of_id = claims.rows_of(job)
    alone = train_alone(ARGS, [[[of_id[id_] for id_ in ids] for ids in step] for step in ledger])
    queue = lp.QueueStats(5, 5, 0, 0, 4, 0, 1, 0, 0, 64, (), is_cancelled=True)
    nine_of_ten = Data(np.zeros((10, 64)), np.array([0] * 9 + [1]))

    def ran(job: Job, attempts: Sequence[int] = (2, 2, 2), **changes: Any) -> Ran:
        stats = replace(queue, **changes)
        workers = [Worked(alone, stats, 1.0, ledger, attempt) for attempt in attempts[:2]]
        return Ran(job, workers, [Fed(1.5, {}, attempts[2])])

    def learned(parameters: Array, ledger: Ledger) -> Ran:
        worker = Worked(parameters, None, None, ledger, 1)
        return Ran(job, [worker] * 2, [])

    def of_ledger(*steps: Any) -> Ran:
        stats = replace(queue, put=10, taken=10, handled=10, redelivered=0, is_cancelled=False)
        return Ran(JOB, [Worked(alone, stats, None, list(steps), 1)] * 2, [])

    first, second = ([(0, partition, i) for i in range(5)] for partition in range(2))

    def inferred(*of_feeders: dict[int, list[tuple[int, int]]]) -> Ran:
        return Ran(replace(JOB, main_fun=infer), [], [Fed(None, each, 1) for each in of_feeders])

    results = {number: [(i, 0) for i in range(5)] for number in range(2)}
    swapped = {**results, 1: [results[1][1], results[1][0], *results[1][2:]]}
    zeros, right = learned(ARGS.parameters, ledger), learned(alone, ledger)
    one_not_told = ran(enough, put=70)._replace(feeders=[Fed(1.5, {}, 1), Fed(None, {}, 1)])
    claims.check_once(ran(killed))
    claims.check_once(of_ledger([first[:3], second], [first[3:], []]))
    claims.check_bounded(ran(job))
    claims.check_same_as_alone(right, "")
    claims.check_planned(right)
    claims.check_accuracy(zeros, nine_of_ten, "")
    claims.check_enough(ran(enough, put=70))
    claims.check_named(absent, "worker 1 has not registered within 3 s; registered: ps 0, worker 0")
    claims.check_inferred(inferred(results))

    assert_refused(
        lambda: claims.check_once(of_ledger([first, second], [[], second[:1]])),
        lambda: claims.check_once(of_ledger([first[1:], second])),
        lambda: claims.check_once(ran(killed, (1, 2, 2))),
        lambda: claims.check_once(ran(killed, (2, 2, 1))),
        lambda: claims.check_once(ran(killed, redelivered=0)),
        lambda: claims.check_once(ran(killed, put=4)),
        lambda: claims.check_bounded(ran(job, most_waiting=65)),
        lambda: claims.check_bounded(ran(job, most_waiting=63)),
        lambda: claims.check_same_as_alone(learned(np.nextafter(alone, 1), ledger), ""),
        lambda: claims.check_same_as_alone(learned(alone, ledger[:1]), ""),
        lambda: claims.check_planned(learned(alone, ledger[::-1])),
        lambda: claims.check_planned(learned(alone, uneven)),
        lambda: claims.check_accuracy(zeros, replace(nine_of_ten, targets=np.arange(10) // 8), ""),
        lambda: claims.check_enough(ran(enough, put=71)),
        lambda: claims.check_enough(ran(enough, put=70, is_cancelled=False)),
        lambda: claims.check_enough(one_not_told),
        lambda: claims.check_inferred(inferred(swapped)),
        lambda: claims.check_inferred(inferred(results, {1: results[1]})),
        lambda: claims.check_named(absent, "nothing"),
        lambda: claims.check_named(
            absent, "worker 1 has not registered within 3 s; registered: ps 0"
        ),
        lambda: claims.check_named(
            absent, "worker 0 has not registered within 3 s; registered: ps 0, worker 1"
        ),
    )
