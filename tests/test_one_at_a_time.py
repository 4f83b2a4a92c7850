"""Nodes whose calls run one at a time, in the thread that has built the object."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import launchpad as lp
from tests.helpers import one_thread_nodes
from tests.waiting import until

DEADLINE_S = 60.0
LOCAL = pytest.mark.parametrize("launch_type", ["test_mt", "test_mp"])


@LOCAL
@pytest.mark.parametrize("how", ["one_at_a_time=True", "thread_pool_size=1", "decorated"])
def test_what_belongs_to_the_thread_of_the_constructor_works_in_each_method(
    launch_type: str, how: str
) -> None:
    program = lp.Program("tables")
    kind = one_thread_nodes.Decorated if how == "decorated" else one_thread_nodes.Table
    node: lp.CourierNode[Any] = lp.CourierNode(
        kind,
        one_at_a_time=how == "one_at_a_time=True",
        courier_kwargs={"thread_pool_size": 1} if how == "thread_pool_size=1" else None,
    )
    table = program.add_node(node, label="table")
    with program.group("user"):
        for _ in range(2):
            program.add_node(lp.PyNode(one_thread_nodes.use, table, 100))
    program.add_node(lp.PyNode(lp.wait_for_stop), label="keeps")

    with lp.launch(program, launch_type) as running:
        results = running.results("user", DEADLINE_S)
        client = table.dereference()
        assert client.insert(0) == 203
        assert client.is_in_its_own_thread()
        assert client.is_in_the_main_thread() == (launch_type == "test_mp")

    assert {third for _, third in results} == {f"0.{'3' * 50}"}


def test_in_a_process_a_method_may_handle_signals() -> None:
    program = lp.Program("alarms")
    node = lp.CourierNode(one_thread_nodes.AlarmedTable, one_at_a_time=True)
    table = program.add_node(node, label="table")

    with lp.launch(program, "test_mp"):
        assert table.dereference().wait_for_alarm() == "came"


@LOCAL
def test_a_member_of_a_colocation_has_a_thread_for_its_constructor_and_its_calls(
    launch_type: str,
) -> None:
    program = lp.Program("colocated")
    node = lp.CourierNode(one_thread_nodes.Table, one_at_a_time=True)
    table = node.create_handle()
    other = lp.PyNode(one_thread_nodes.use, table, 100)
    program.add_node(lp.MultiThreadingColocation([node, other]), label="both")
    program.add_node(lp.PyNode(lp.wait_for_stop), label="keeps")

    with lp.launch(program, launch_type) as running:
        until(lambda: table.dereference().insert(0) > 100)
        assert table.dereference().is_in_its_own_thread()
        running.stop()
        assert running.exit_status() == 0


@LOCAL
def test_calls_of_an_object_with_a_run_have_a_thread_of_their_own(launch_type: str) -> None:
    program = lp.Program("running")
    node: lp.CourierNode[Any] = lp.CourierNode(
        one_thread_nodes.RunningTable, courier_kwargs={"thread_pool_size": 1}
    )
    table = program.add_node(node, label="table")

    with lp.launch(program, launch_type):
        clients = [table.dereference() for _ in range(4)]
        futures = [client.futures.work() for client in clients for _ in range(10)]
        assert {future.result(DEADLINE_S) for future in futures} == {1}


@LOCAL
def test_a_call_that_hangs_is_interrupted_when_the_program_stops(
    launch_type: str, tmp_path: Path
) -> None:
    program = lp.Program("hanging")
    node = lp.CourierNode(one_thread_nodes.HangingTable, one_at_a_time=True)
    table = program.add_node(node, label="table")
    running = lp.launch(program, launch_type)
    table.dereference().futures.hang(tmp_path)
    until((tmp_path / "up").exists)

    running.stop()

    assert running.exit_status() == 0
    assert (tmp_path / "interrupted").exists()


@LOCAL
def test_an_object_saves_itself_in_its_turn(launch_type: str) -> None:
    program = lp.Program("saving")
    node = lp.CourierNode(one_thread_nodes.SavingTable, one_at_a_time=True)
    with program.group("table", restart=lp.RestartPolicy(save_every_s=0.05)):
        table = program.add_node(node)

    with lp.launch(program, launch_type):
        client = table.dereference()
        until(lambda: client.saves() > 1)


@pytest.mark.parametrize(
    ("kind", "why"),
    [
        (one_thread_nodes.RunningTable, r"RunningTable\.run\(\) would keep the thread"),
        (one_thread_nodes.AsyncTable, r"AsyncTable\.insert is an async def"),
        (one_thread_nodes.BatchedTable, r"BatchedTable\.insert is batched"),
    ],
)
def test_what_needs_other_threads_is_refused_where_it_is_added(kind: type, why: str) -> None:
    program = lp.Program("refused")

    with pytest.raises(lp.DefinitionError, match=why):
        program.add_node(lp.CourierNode(kind, one_at_a_time=True), label="table")


def test_what_a_function_builds_is_refused_as_it_is_built() -> None:
    program = lp.Program("refused")
    node = lp.CourierNode(lambda: one_thread_nodes.AsyncTable(), one_at_a_time=True)
    program.add_node(node, label="table")

    with pytest.raises(lp.ProgramFailed, match="table-0 cannot run one call at a time"):
        lp.run(program, "test_mt")
