"""Queues between workers, on every backend."""

from __future__ import annotations

import launchpad as lp
from tests.helpers import queue_nodes
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
        log = running.logs("two")

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
    if launch_type != "test_mt":  # where it is in the script's own
        assert "fails-0 (attempt 1) ended with 1 items in hand, number 1" in log


def test_consumers_wait_for_producers_that_have_closed_and_are_started_again(
    launch_type: str,
) -> None:
    program = lp.Program("again")
    rows = program.add_node(lp.QueueNode[queue_nodes.Pair](producers=3), label="rows")
    with program.group("producer", restart=lp.RestartPolicy(scope="group", backoff=0)):
        for _ in range(2):
            program.add_node(lp.PyNode(queue_nodes.close_and_come_again, rows))
    program.add_node(lp.PyNode(queue_nodes.close_when_others_come_again, rows), label="other")
    program.add_node(lp.PyNode(queue_nodes.consume, rows), label="consumer")

    handled = lp.run(program, launch_type, timeout_s=DEADLINE_S)["consumer"][0]

    assert sorted(handled[:2]) == [(0, 1), (1, 1)]
    assert handled[2] == (2, 1)
    assert sorted(handled[3:]) == [(0, 2), (1, 2)]


def test_waits_at_a_queue_end_with_the_program(launch_type: str) -> None:
    program = lp.Program("waits")
    empty = program.add_node(lp.QueueNode[int](), label="empty")
    full = program.add_node(lp.QueueNode[int](maxsize=1), label="full")
    program.add_node(lp.PyNode(queue_nodes.wait_in_threads, empty, full), label="waits")

    with lp.launch(program, launch_type) as running:
        queue = running.client("full")
        until(lambda: queue.size() == 1)
        until(lambda: all(each.state == "running" for each in running.status()))

    assert {each.state for each in running.status() if each.label == "waits"} == {"stopped"}
