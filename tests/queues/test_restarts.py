"""What becomes of a queue whose own worker ends."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

import launchpad as lp
from tests.helpers import queue_nodes
from tests.waiting import pid_of, until


def test_the_next_launch_goes_on_with_what_waited_and_what_was_in_hand(tmp_path: Path) -> None:
    program = lp.Program("queue")
    rows = program.add_node(lp.QueueNode[int](), label="rows")
    program.add_node(lp.PyNode(queue_nodes.put_and_stop, rows, 3), label="producer")
    lp.run(program, "test_mt", state=tmp_path / "state")

    again = lp.Program("queue")
    rows = again.add_node(lp.QueueNode[int](), label="rows")
    again.add_node(lp.PyNode(lp.wait_for_stop), label="keeps")
    with lp.launch(again, "test_mt", state=tmp_path / "state") as running:
        queue = rows.dereference()
        left = [queue.get(60) for _ in range(3)]
        (report,) = queue.reports()
        running.stop()

    assert left == [0, 1, 2]
    assert (report.consumer, report.numbers) == ("producer-0", (1,))


@pytest.mark.slow
def test_a_queue_that_is_restarted_with_its_producers_waits_for_those_that_had_closed() -> None:
    program = lp.Program("queue")
    with program.group("rows", restart=lp.RestartPolicy(scope="program", backoff=0)):
        rows = program.add_node(lp.QueueNode[int](producers=1))
    with program.group("fails", restart=lp.RestartPolicy(scope="program", backoff=0)):
        program.add_node(lp.PyNode(queue_nodes.fail_when_all_have_closed, rows))
    program.add_node(lp.PyNode(queue_nodes.go_on_when_one_is_handled, rows), label="producer")
    program.add_node(lp.PyNode(queue_nodes.consume_in_the_second_attempt, rows), label="consumer")

    assert lp.run(program, "test_mt", timeout_s=60)["consumer"] == [[1, 2]]


@pytest.mark.slow
def test_a_queue_whose_worker_is_killed_is_lost_and_those_that_used_it_are_told() -> None:
    program = lp.Program("queue")
    with program.group("rows", restart=lp.RestartPolicy(backoff=0)):
        rows = program.add_node(lp.QueueNode[str]())
    program.add_node(lp.PyNode(queue_nodes.notice_a_lost_queue, rows), label="user")

    with lp.launch(program, "test_mp") as running:
        until(lambda: "has one" in running.logs("user"))
        os.kill(pid_of(running, "rows-0"), signal.SIGKILL)

        assert running.results("user", 60) == [["first", "QueueLost", "third"]]
