"""Pools, work queues and counters, on every backend."""

from __future__ import annotations

import launchpad as lp
from tests.helpers import pool_nodes

DEADLINE_S = 90
AT_ONCE = lp.RestartPolicy(max_restarts=5, backoff=0)


def test_workers_share_functions_jobs_and_counts_and_one_that_fails_loses_nothing(
    launch_type: str,
) -> None:
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
