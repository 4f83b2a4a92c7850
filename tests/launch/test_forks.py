"""Forks: of the script, of a worker, and of a forked child of a worker."""

from __future__ import annotations

import contextlib
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import launchpad as lp
from launchpad.launch.rundir import locations
from tests.courier.conftest import REPOSITORY
from tests.helpers import forking_nodes
from tests.helpers.forking_nodes import Clients, Echo, Walk, Walker
from tests.waiting import until

ELSEWHERE = r"Refused: .* is reached by threads of its own process alone"
OF_PARENT = r"OutcomeUnknown: .* was under way when this process .* was forked from process"
NO_THREAD = r"NotRunningError: .* was forked from process \d+, which has it\."
ONLY_WORKER = r"NotRunningError: .* works in the worker itself, and this process"

#: What happens wherever the servers are.
EVERYWHERE: Walk = {
    "a future in flight, small": OF_PARENT,
    "a future in flight, large": OF_PARENT,
    "a future in flight, with a stream": OF_PARENT,
    "a future in flight, of several": OF_PARENT,
    "a future in flight, watched": OF_PARENT,
    "concurrent.futures.wait": [4, 0],
    "callbacks in the child": 0,
    "a stream": r"StreamBroken: this process .*, which has the stream 'count'",
    "the parent's futures": [1, 1 << 17, [2, 2], 3],
    "replay batches": NO_THREAD,
    "a pool's future": OF_PARENT,
    "a pool's map": NO_THREAD,
    "a pool": NO_THREAD,
    "the parent's pool": [1, 2, 3, 4],
    "a program of the child's": 9,
    "a lock held, Inbox": 1,
}
IN_WORKERS: Walk = {
    "lp.current()": "walker-0",
    "lp.barrier()": ONLY_WORKER,
    "lp.wait_for_stop()": ONLY_WORKER,
    "lp.stop_event()": False,
    "a future in flight, over a slow edge": OF_PARENT,
}
#: Servers in other processes: the child has a session of its own.
WORKS: Walk = {
    "a call": 5,
    "a future": 6,
    "a large future": 1 << 17,
    "an awaited call": 7,
    "a new stream": [0, 1, 2],
    "WorkQueue.add": None,
    "Counter.increment": [1, 2, 3],
    "Queue": [1, 2, [3, 4, 5]],
    "a replay writer": 2,
    "a replay sample": None,
    "a pool of the child's": 1,
    "a lock held, Counter": None,
    "a lock held, WorkQueue": "x",
    "a lock held, Queue": 0,
    "a lock held, client": 1,
}
#: Servers that are threads of the process that has forked.
IS_REFUSED: Walk = {
    **dict.fromkeys(WORKS, ELSEWHERE),
    "a pool of the child's": r"WorkerFailed: no worker of the pool is left",
    "Counter.increment": [1, ELSEWHERE, 2],
    "Queue": [1, ELSEWHERE, [2, 3, 5]],
}


def make_program() -> lp.Program:
    program = lp.Program("forks")
    table = lp.replay.Table("items", lp.replay.Uniform(), lp.replay.Fifo(), 100)
    nodes = {
        "echo": lp.CourierNode(Echo),
        "rows": lp.QueueNode(maxsize=100),
        "jobs": lp.WorkQueueNode(),
        "counter": lp.CounterNode(),
        "replay": lp.ReplayNode([table]),
    }
    handles = [program.add_node(node, label=label) for label, node in nodes.items()]
    workers = [program.add_node(lp.PoolNode(), label="pool")]
    slow = handles[0].through(lp.edges.Delay(0.3))
    program.add_node(lp.CourierNode(Walker, *handles, workers, slow), label="walker")
    return program


def differences(seen: Walk, expected: Walk) -> Walk:
    """What is not as expected, of outcomes or of what errors say."""

    def is_as(found: Any, wanted: Any) -> bool:
        if isinstance(wanted, list) and isinstance(found, list):
            return len(found) == len(wanted) and all(map(is_as, found, wanted))
        if isinstance(wanted, str) and isinstance(found, str):
            return re.match(wanted, found) is not None
        return bool(found == wanted)

    names = [*expected, *(name for name in seen if name not in expected)]
    return {
        name: seen.get(name, "was not done")
        for name in names
        if name not in expected or not is_as(seen.get(name), expected[name])
    }


def take_jobs(seen: Walk) -> list[Any]:
    return [job for job in seen.pop("WorkQueue.take") if not re.match(ELSEWHERE, str(job))]


@pytest.mark.slow
@pytest.mark.parametrize("launch_type", ["test_mt", "test_mp"])
def test_each_client_and_lock_works_in_a_forked_child_or_says_at_once_why_not(
    launch_type: str,
) -> None:
    """In one of the script, in one of a worker, and in one of a forked child of a worker."""
    is_reached = launch_type == "test_mp"
    by_launch_type = WORKS if is_reached else IS_REFUSED
    of_worker = {
        **EVERYWHERE,
        **by_launch_type,
        **IN_WORKERS,
        "lp.heartbeat()": None if is_reached else ONLY_WORKER,
        "a future over a slow edge": 8 if is_reached else ELSEWHERE,
    }

    with lp.launch(make_program(), launch_type) as running:
        names = ("echo", "rows", "jobs", "counter", "replay")
        clients = Clients(*map(running.client, names), running.clients("pool"))
        of_script = forking_nodes.walk(clients, "script")
        walker = running.client("walker")
        in_worker = walker.walk()
        in_child = walker.walk_in_child()

    jobs = [*take_jobs(of_script), *take_jobs(in_worker)]
    assert differences(of_script, {**EVERYWHERE, **by_launch_type}) == {}
    assert differences(in_worker, {**of_worker, "lp.current().save()": 1}) == {}
    if is_reached:
        jobs += take_jobs(in_child)
        assert differences(in_child, {**of_worker, "lp.current().save()": 2}) == {}
    else:  # its first call
        assert isinstance(in_child, lp.courier.Refused)
    assert len(set(jobs)) == len(jobs) == (9 if is_reached else 4)


@pytest.mark.parametrize("launch_type", ["test_mt", "test_mp"])
def test_a_forked_child_of_the_script_is_refused_what_only_the_script_can_do(
    launch_type: str,
) -> None:
    program = lp.Program("forks")
    program.add_node(lp.CourierNode(Echo), label="echo")

    with lp.launch(program, launch_type) as running:
        uses: list[Callable[[], Any]] = [
            running.wait,
            running.stop,
            running.metrics,
            running.edges,
            lambda: running.results("echo"),
            lambda: running.trace(1),
            lambda: running.restart("echo-0"),
            lambda: running.thread_worker(print, "mine"),
        ]
        release = forking_nodes.held(running._runner.lifetime.changed)
        refused = [str(forking_nodes.in_child(use)) for use in uses]
        states = forking_nodes.in_child(lambda: [row.worker for row in running.status()])
        release()
        assert running.client("echo").echo(1) == 1

    assert [text for text in refused if "only there it can be waited for" not in text] == []
    assert states == ["echo-0"]


def reduce_with_forks(group: lp.Collective) -> list[Any]:
    before = group.all_reduce(1)
    text = str(forking_nodes.in_child(lambda: group.all_reduce(1)))
    return [before, text, group.all_reduce(2)]


def leave_in_child(echo: Any) -> str:
    """Returns in a forked child as well, or raises there."""
    for error in (None, KeyError("in the child")):
        pid = os.fork()
        if pid == 0 and error is not None:
            raise error
        if pid == 0:
            return "of the child"
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == (error is not None)
    echo.echo(1)
    return "of the parent"


@pytest.mark.parametrize("launch_type", ["test_mt", "test_mp"])
def test_a_forked_child_is_no_rank_and_its_parent_goes_on(launch_type: str) -> None:
    program = lp.Program("forks")
    with program.group("rank"):
        for _ in range(2):
            program.add_node(lp.CollectiveNode(reduce_with_forks))

    with lp.launch(program, launch_type) as running:
        results = running.results("rank", 60)

    for before, text, after in results:
        assert (before, after) == (2, 4)
        assert "a forked child is no rank" in text


@pytest.mark.parametrize("launch_type", ["test_mt", "test_mp"])
def test_a_forked_child_that_leaves_the_workers_function_ends_alone(launch_type: str) -> None:
    program = lp.Program("forks")
    echo = program.add_node(lp.CourierNode(Echo), label="echo")
    program.add_node(lp.PyNode(leave_in_child, echo), label="forks")

    with lp.launch(program, launch_type) as running:
        results = running.results("forks", 60)

    assert results == ["of the parent"]


def stop_in_child() -> str:
    lp.stop_event()  # it is not interrupted
    outcome = str(forking_nodes.in_child(lp.stop))
    if outcome == "None":
        lp.wait_for_stop(60)
    return outcome


@pytest.mark.parametrize("launch_type", ["test_mt", "test_mp"])
def test_a_forked_child_can_stop_the_program_where_the_worker_is_a_process(
    launch_type: str,
) -> None:
    program = lp.Program("forks")
    program.add_node(lp.PyNode(stop_in_child), label="stops")

    with lp.launch(program, launch_type) as running:
        running.wait()

    (outcome,) = running.results("stops", 60)
    if launch_type == "test_mp":
        assert outcome == "None"
    else:
        assert "lp.stop() works in the worker itself" in outcome


@contextlib.contextmanager
def sleeping_child() -> Iterator[None]:
    """A forked child of this process that lives for as long as the block."""
    reading, writing = os.pipe()
    has_begun, begins = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(writing)
        # What the child drops of its parent's, it has dropped before the fork returns here.
        os.write(begins, b"1")
        os.read(reading, 1)
        os._exit(0)
    os.read(has_begun, 1)
    for fd in (reading, has_begun, begins):
        os.close(fd)
    try:
        yield
    finally:
        os.close(writing)
        os.waitpid(pid, 0)


@pytest.mark.parametrize("launch_type", ["test_mt", "test_mp"])
def test_a_forked_child_of_the_script_holds_nothing_of_the_run(
    launch_type: str, tmp_path: Path
) -> None:
    program = lp.Program("forks")
    program.add_node(lp.CourierNode(Echo), label="echo")
    state = tmp_path / "state"

    with lp.launch(program, launch_type, state=state) as running, sleeping_child():
        runtime = running._run.runtime
        assert locations.is_held(runtime)
        running.stop()
        until(lambda: not locations.is_held(runtime))
        with lp.launch(program, launch_type, state=state) as again:
            assert again.client("echo").echo(1) == 1


def test_the_end_of_a_script_with_a_view_does_not_wait_for_a_child_that_it_has_forked() -> None:
    source = f"""
import sys; sys.path.insert(0, {str(REPOSITORY)!r})
import os, time
from launchpad.launch import view_process
view_process._PROGRAM = "import sys; sys.stdin.read()"
view_process.start("run")
pid = os.fork()
if pid == 0:
    time.sleep(60)
    os._exit(0)
print(pid, flush=True)
"""
    script = subprocess.Popen([sys.executable, "-c", source], stdout=subprocess.PIPE)
    assert script.stdout is not None
    child = int(script.stdout.readline())
    try:
        assert script.wait(30) == 0
    finally:
        os.kill(child, 9)
        script.stdout.close()
