"""Work queues with real workers, and the stop of what waits in them."""

from __future__ import annotations

import itertools
import math
import os
import pickle
import signal
from pathlib import Path
from typing import Any

import pytest

import launchpad as lp
from launchpad import courier
from launchpad.work_queues.client import WorkQueue
from launchpad.work_queues.server import WorkQueueServer
from tests.helpers import pool_nodes
from tests.waiting import pid_of, until

DEADLINE_S = 60.0
AT_ONCE = lp.RestartPolicy(max_restarts=20, backoff=0)


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ({"max_attempts": 0}, "max_attempts=0"),
        ({"max_attempts": True}, "max_attempts=True"),
        ({"lease_s": math.nan}, "lease_s=nan"),
    ],
)
def test_a_work_queue_with_numbers_that_make_no_sense_is_refused(
    arguments: dict[str, Any], says: str
) -> None:
    with pytest.raises(lp.DefinitionError, match=says):
        lp.WorkQueueNode(**arguments)


def test_a_job_has_a_key_and_is_added_once() -> None:
    program = lp.Program("jobs")
    handle = program.add_node(lp.WorkQueueNode(max_attempts=1), label="jobs")
    assert type(handle.through(lp.edges.Delay(0.01))) is type(handle)

    with lp.launch(program, "test_mt") as running:
        queue = running.client("jobs")
        assert queue.add("x", key="a") == "a"
        assert queue.add("y", key="a") == "a"
        assert queue.add_many(["p", "q"]) == [1, 2]
        assert queue.add_many({"b": "r"}) == ["b"]
        leases = list(itertools.islice(queue, 4))
        assert [lease.job for lease in leases] == ["x", "p", "q", "r"]
        with pytest.raises(TimeoutError, match="leased=4"):
            queue.take(0.01)
        with pytest.raises(TimeoutError, match="no job was finished"):
            list(queue.results(0.01))
        assert leases[0].done(7)
        for _ in range(2):  # as after an answer that was lost
            assert leases[1].fail(ValueError("no"))
            assert leases[2].give_back()
        assert leases[3].extend()
        queue.close()
        with pytest.raises(ValueError, match="closed"):
            queue.add("z")
        for lease in (leases[3], next(iter(queue))):
            assert lease.done(lease.job)
        assert queue.take() is None
        finished = {job.key: job for job in queue.results(DEADLINE_S)}

    assert {key: job.result for key, job in finished.items()} == {"a": 7, 1: None, 2: "q", "b": "r"}
    assert finished[1].reasons == ("ValueError: no",)


@pytest.mark.slow
@pytest.mark.parametrize(("n", "size"), [(10_000, 1000), (20, 1 << 20), (3, 6 << 20)])
def test_all_results_arrive_in_answers_of_a_few_megabytes(
    monkeypatch: pytest.MonkeyPatch, n: int, size: int
) -> None:
    server = WorkQueueServer(max_attempts=1, lease_s=None)
    for number in range(n):
        server._table.add(number, None)
        server._table.done(number, "lease", bytes(size))
    answers: list[int] = []

    def ask(method: str, cursor: Any, timeout_s: float | None) -> Any:
        answer = server.finished(cursor, 0.0)
        answers.append(len(pickle.dumps(answer)))
        return answer

    server.close()
    queue = WorkQueue(courier.Client("unix:/none"))
    monkeypatch.setattr(queue._poll, "ask", ask)
    keys = [job.key for job in queue.results() if len(job.result) == size]

    assert keys == list(range(n))
    assert max(answers) <= max(4 << 20, size) + 100_000


def test_a_job_whose_answer_was_missed_is_given_by_the_next_take(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    program = lp.Program("jobs")
    program.add_node(lp.WorkQueueNode(), label="jobs")

    with lp.launch(program, "test_mt") as running:
        queue = running.client("jobs")
        queue.add_many("ab")
        ask = queue._poll.ask

        def interrupted(*args: Any, **options: Any) -> Any:
            ask(*args, **options)
            raise KeyboardInterrupt

        with monkeypatch.context() as patch:
            patch.setattr(queue._poll, "ask", interrupted)
            with pytest.raises(KeyboardInterrupt):
                queue.take()
        jobs = [queue.take(DEADLINE_S).job for _ in range(2)]

    assert jobs == ["a", "b"]


def test_a_job_that_takes_too_long_is_done_by_another_worker(tmp_path: Path) -> None:
    program = lp.Program("jobs")
    queue = program.add_node(lp.WorkQueueNode(max_attempts=20, lease_s=1.5), label="jobs")
    go = str(tmp_path / "go")
    program.add_node(lp.PyNode(pool_nodes.take_and_wait, queue, go), label="slow")

    with lp.launch(program, "test_mp") as running:
        jobs = running.client("jobs")
        jobs.add("job", key="a")
        until(lambda: jobs.counts().leased)
        lease = jobs.take(DEADLINE_S)
        while not lease.done("in time"):  # this machine may have been too busy
            lease = jobs.take(DEADLINE_S)
        assert lease.attempt > 1
        assert [job.result for job in jobs.results(DEADLINE_S, n=1)] == ["in time"]
        Path(go).touch()
        assert running.results("slow", DEADLINE_S) == [(False, 1)]


def test_a_queue_that_is_killed_goes_on_from_what_was_saved() -> None:
    program = lp.Program("jobs")
    saves = lp.RestartPolicy(max_restarts=20, backoff=0, save_every_s=0.05)
    with program.group("jobs", restart=saves):
        queue = program.add_node(lp.WorkQueueNode())
    with program.group("worker", restart=AT_ONCE):
        for _ in range(2):
            program.add_node(lp.PyNode(pool_nodes.do_jobs_slowly, queue))
    program.add_node(lp.PyNode(lp.wait_for_stop), label="keeps")

    with lp.launch(program, "test_mp") as running:
        jobs = running.client("jobs")
        jobs.add_many(range(300))
        jobs.close()
        results = jobs.results(DEADLINE_S)
        seen = [next(results) for _ in range(50)]
        until(lambda: jobs.counts().is_closed)
        saved = until(lambda: _saved_versions(running))
        # The second surely begins after the close.
        until(lambda: _saved_versions(running) > saved + 1)
        os.kill(pid_of(running, "jobs-0"), signal.SIGKILL)
        seen += results
        assert jobs.counts().done == 300

    assert {job.key: job.result for job in seen} == {n: n + 1 for n in range(300)}
    assert len(seen) == 300


def _saved_versions(running: lp.Running) -> int:
    files = running.log_directory.rglob("state-*.pickle")
    return max((int(file.stem.partition("-")[2]) for file in files), default=0)


def test_all_waits_end_with_the_program() -> None:
    program = lp.Program("waits")
    workers = [program.add_node(lp.PoolNode(), label="worker")]
    queue = program.add_node(lp.WorkQueueNode(), label="jobs")
    counter = program.add_node(lp.CounterNode(), label="counter")
    waits = lp.PyNode(pool_nodes.wait_in_all_ways, workers, queue, counter)
    program.add_node(waits, label="waits")

    with lp.launch(program, "test_mp") as running:
        running.client("counter").wait_for(waiting=1, timeout_s=DEADLINE_S)
    log = running.logs("waits")

    expected = {"future", "map", "take", "results", "counter"}
    raised = [*((name, "Stopped") for name in expected), ("shutdown", "returned")]
    assert f"raised {sorted(raised)}" in log
    assert running.exit_status() == 0


class Unequal:
    """An object with the __eq__ of all objects: no copy of it is equal to it."""


class Named:
    def __init__(self, name: str) -> None:
        self.name = name

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Named) and other.name == self.name

    def __hash__(self) -> int:
        return hash(self.name)


def test_sound_21_keys_that_are_not_equal_to_their_copies_are_refused() -> None:
    program = lp.Program("jobs")
    program.add_node(lp.WorkQueueNode(), label="jobs")

    with lp.launch(program, "test_mt") as running:
        queue = running.client("jobs")
        for key in (float("nan"), Unequal(), (1, float("nan"))):
            with pytest.raises(ValueError, match="a copy of it is not equal"):
                queue.add("job", key=key)
            with pytest.raises(ValueError, match="a copy of it is not equal"):
                queue.add_many({key: "job"})
        with pytest.raises(TypeError, match="hashable"):
            queue.add("job", key=[1])
        queue.add("job", key=(1, Named("a")))
        queue.close()
        lease = queue.take(10)
        assert lease.done(1)
        finished = list(queue.results(10))

    assert [(job.key, job.result) for job in finished] == [((1, Named("a")), 1)]
