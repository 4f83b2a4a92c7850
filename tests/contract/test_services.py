"""Queues, pools, work queues, counters and replay between workers, on every backend."""

from __future__ import annotations

import launchpad as lp
from launchpad import replay
from tests.helpers import pool_nodes, queue_nodes, replay_nodes
from tests.waiting import until

DEADLINE_S = 90
AT_ONCE = lp.RestartPolicy(max_restarts=5, backoff=0)


def test_each_item_is_handled_once_though_producers_and_consumers_fail(launch_type: str) -> None:
    program = lp.Program("queues")
    rows = program.add_node(lp.QueueNode[queue_nodes.Pair](maxsize=20, producers=3), label="rows")
    with program.group("producer", restart=AT_ONCE):
        for _ in range(2):
            program.add_node(lp.PyNode(queue_nodes.produce, rows, 100))
    program.add_node(lp.PyNode(queue_nodes.produce_without_closing, rows, 50), label="other")
    with program.group("consumer"):
        for _ in range(2):
            program.add_node(lp.PyNode(queue_nodes.consume, rows))
    two = program.add_node(lp.QueueNode[str](), label="two")
    with program.group("fails", restart=AT_ONCE):
        program.add_node(lp.PyNode(queue_nodes.die_with_two_in_hand, two))
    program.add_node(lp.PyNode(lp.wait_for_stop), label="keeps")

    with lp.launch(program, launch_type) as running:
        queue = two.dereference()
        queue.put_many(["first", "second"])
        redelivered = running.results("fails", DEADLINE_S)
        handled = [pair for each in running.results("consumer", DEADLINE_S) for pair in each]
        until(lambda: queue.stats().handled == 2)  # as its consumer has succeeded
        stats, reports = rows.dereference().stats(), queue.reports()
        if launch_type != "test_mt":  # where the line is in the script's own log
            ended = "fails-0 (attempt 1) ended with 1 items in hand, number 1"
            until(lambda: ended in running.logs("two"))  # lines of another host come later

    everything = {(i, k) for i in range(2) for k in range(100)} | {(10, k) for k in range(50)}
    assert set(handled) == everything
    assert len(handled) == len(everything)
    assert stats.put == stats.handled == 250
    assert stats.most_waiting <= 20
    assert stats.closed == ("other-0", "producer-0", "producer-1")
    assert redelivered == [["first", "second"]]
    assert [(each.consumer, each.attempt, each.items) for each in reports] == [
        ("fails-0", 1, ["first"]),
        ("fails-0", 1, ["second"]),
    ]


def test_workers_share_functions_jobs_and_counts_and_failures_lose_none(launch_type: str) -> None:
    program = lp.Program("pools")
    with program.group("pool", restart=AT_ONCE):
        workers = [program.add_node(lp.PoolNode()) for _ in range(2)]
    program.add_node(lp.PyNode(pool_nodes.sweep, workers, 300), label="sweep")
    queue = program.add_node(lp.WorkQueueNode(), label="jobs")
    counter = program.add_node(lp.CounterNode(), label="counter")
    with program.group("worker", restart=AT_ONCE):
        for _ in range(2):
            program.add_node(lp.PyNode(pool_nodes.do_jobs, queue, counter))
    program.add_node(lp.PyNode(lp.wait_for_stop), label="keeps")

    with lp.launch(program, launch_type) as running:
        jobs = running.client("jobs")
        keys = jobs.add_many(range(40))
        with lp.pool(running.clients("pool")) as pool:
            assert list(pool.map(lambda x: -x, range(50))) == [-x for x in range(50)]
        finished = list(jobs.results(DEADLINE_S, n=40))
        jobs.close()
        mapped, squares, remote, names = running.results("sweep", DEADLINE_S)[0]
        running.results("worker", DEADLINE_S)
        counts = running.client("counter").wait_for(worker_jobs=40, timeout_s=DEADLINE_S)
        attempts = [s.attempt for s in running.status() if s.label == "worker"]

    assert mapped == list(range(1, 301))
    assert squares == [0, 1, 4, 9, 16]
    assert remote == "RemoteTraceback"
    assert names == ["pool-0", "pool-1"]
    assert sorted(keys) == sorted(job.key for job in finished) == list(range(40))
    assert {job.key: job.result for job in finished} == {n: 2 * n for n in range(40)}
    assert sum(attempts) == 4, "twice one has failed in the middle of a job"
    assert counts == {"worker_jobs": 40}


def test_actors_write_and_a_learner_samples_as_the_limiter_lets_them(launch_type: str) -> None:
    ratio = replay.SampleToInsertRatio(4, min_size_to_sample=40, error_buffer=400)
    tables = [
        replay.Table("transitions", replay.Prioritized(0.6), replay.Fifo(), 500, 0, ratio),
        replay.Table("sequences", replay.Uniform(), replay.MinHeap(), 10),
        replay.Table.queue("results", 4),
    ]
    program = lp.Program("replay")
    node = program.add_node(lp.ReplayNode(tables), label="replay")
    with program.group("actor"):
        for _ in range(2):
            program.add_node(lp.PyNode(replay_nodes.act, node, 2))
    program.add_node(lp.PyNode(replay_nodes.learn, node, 20), label="learner")
    program.add_node(lp.PyNode(lp.wait_for_stop), label="keeps")

    with lp.launch(program, launch_type) as running:
        acted = running.results("actor", DEADLINE_S)
        ((seen, shape, results),) = running.results("learner", DEADLINE_S)
        info = running.client("replay").info()

    assert acted == [2, 2]
    assert seen >= 20 * 32 * 0.9  # some may have been removed before they were updated
    assert shape == (16, 10, 84, 84)
    assert results == [0, 0, 1, 1]
    assert info["transitions"].inserts == 4 * 32  # of 30 steps each, and 2 shorter ones at the end
    assert info["sequences"].size == 10
    assert (info["results"].inserts, info["results"].size) == (4, 0)
