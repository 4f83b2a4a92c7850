"""What a worker lets go of when its attempt ends in good order: `lp.on_exit`, `close()`, `__exit__`."""

from __future__ import annotations

import gc
import time
import weakref
from pathlib import Path

import numpy as np
import pytest

import launchpad as lp
from launchpad.launch.supervision import supervisor
from launchpad.nodes.thread_group import RunColocated
from launchpad.replay.server import ReplayServer
from tests.helpers import closing_nodes
from tests.helpers.closing_nodes import Journal
from tests.waiting import until

AT_ONCE = lp.RestartPolicy(max_restarts=1, backoff=0)
KINDS = pytest.mark.parametrize("launch_type", ["test_mt", "test_mp"])


@pytest.fixture
def journal(tmp_path: Path) -> Journal:
    return Journal(tmp_path / "journal")


@KINDS
def test_an_object_is_closed_after_its_run_and_what_was_given_last_is_called_first(
    launch_type: str, journal: Journal
) -> None:
    program = lp.Program("ends")
    program.add_node(lp.PyClassNode(closing_nodes.Runs, journal), label="runs")

    lp.run(program, launch_type)

    assert journal.lines == ["run", "of run", "close", "of the constructor"]


@KINDS
def test_a_server_is_closed_when_the_program_stops_and_its_calls_have_ended(
    launch_type: str, journal: Journal
) -> None:
    program = lp.Program("ends")
    slow = program.add_node(lp.CourierNode(closing_nodes.Slow, journal), label="slow")
    program.add_node(lp.PyNode(closing_nodes.call, slow, "work"), label="caller")

    lp.run(program, launch_type)

    assert journal.lines == ["begins", "ends", "close", "of the constructor"]


@KINDS
def test_functions_and_coroutines_give_what_is_to_be_called(
    launch_type: str, journal: Journal
) -> None:
    program = lp.Program("ends")
    program.add_node(lp.PyNode(closing_nodes.function, journal), label="function")
    other = Journal(journal.path.with_name("other"))
    program.add_node(lp.PyNode(closing_nodes.coroutine, other), label="coroutine")

    lp.run(program, launch_type)

    assert journal.lines == ["function", "last given", "first given"]
    assert other.lines == ["on the loop"]


def test_a_context_manager_leaves_its_block(journal: Journal) -> None:
    program = lp.Program("ends")
    program.add_node(lp.CourierNode(closing_nodes.Leaves, journal), label="leaves")

    with lp.launch(program, "test_mt") as running:
        until(lambda: all(each.state == "running" for each in running.status()))

    assert journal.lines == ["exit (None, None, None)"]


def test_a_lock_is_not_given_back(journal: Journal) -> None:
    program = lp.Program("ends")
    program.add_node(lp.CourierNode(closing_nodes.Lock), label="lock")

    with lp.launch(program, "test_mt") as running:
        until(lambda: all(each.state == "running" for each in running.status()))

    assert running.exit_status() == 0


@KINDS
def test_one_of_a_colocation_is_closed_after_its_run(launch_type: str, journal: Journal) -> None:
    waits = lp.PyClassNode(closing_nodes.Waits, journal)
    ends = lp.PyNode(time.sleep, 0.1)
    program = lp.Program("ends")
    both = lp.MultiThreadingColocation([waits, ends], return_on_first_completed=True)
    program.add_node(both, label="both")

    lp.run(program, launch_type)

    assert journal.lines == ["run ends, closed False", "close"]


def test_a_coroutine_of_a_deferred_in_a_colocation_is_awaited(journal: Journal) -> None:
    node = lp.PyNode(closing_nodes.ignore, lp.Deferred(closing_nodes.OfDeferred, journal))
    program = lp.Program("ends")
    program.add_node(lp.MultiThreadingColocation([node]), label="both")

    lp.run(program, "test_mp")

    assert journal.lines == ["of the deferred"]


@KINDS
def test_an_async_context_manager_leaves_on_the_loop_of_its_methods(
    launch_type: str, journal: Journal
) -> None:
    program = lp.Program("ends")
    program.add_node(lp.CourierNode(closing_nodes.LeavesAsync, journal), label="server")

    with lp.launch(program, launch_type) as running:
        running.client("server").connect()

    assert journal.lines == ["same loop True, task done False"]


@KINDS
@pytest.mark.parametrize("is_colocated", [False, True])
def test_what_runs_one_call_at_a_time_is_saved_and_closed_in_its_thread(
    launch_type: str, is_colocated: bool, journal: Journal, tmp_path: Path
) -> None:
    program = lp.Program("ends")
    table = lp.CourierNode(closing_nodes.Table, journal, one_at_a_time=True)
    node: lp.Node = lp.MultiThreadingColocation([table]) if is_colocated else table
    program.add_node(node, label="table")

    with lp.launch(program, launch_type, state=tmp_path / "state") as running:
        until(lambda: all(each.state == "running" for each in running.status()))

    assert journal.lines == ["save 1", "in its thread True"]


@KINDS
def test_nodes_of_a_colocation_end_the_last_one_first(launch_type: str, journal: Journal) -> None:
    first = lp.PyNode(closing_nodes.function, journal)
    second = lp.CourierNode(closing_nodes.Closes, journal)
    program = lp.Program("ends")
    program.add_node(lp.MultiThreadingColocation([first, second]), label="both")

    with lp.launch(program, launch_type):
        until(lambda: "function" in journal.lines)

    closed = ["close", "of the constructor", "last given", "first given"]
    assert [line for line in journal.lines if line in closed] == closed


def test_it_is_saved_before_it_is_closed_also_when_it_is_restarted(
    journal: Journal, tmp_path: Path
) -> None:
    program = lp.Program("ends")
    with program.group("server", restart=AT_ONCE):
        program.add_node(lp.CourierNode(closing_nodes.Closes, journal))

    with lp.launch(program, "test_mp", state=tmp_path / "state") as running:
        until(lambda: all(each.state == "running" for each in running.status()))
        running.restart("server-0")
        running.client("server").add("again")

    ends = ["save", "close", "of the constructor"]
    assert journal.lines == [*ends, "restore saved", "again", *ends]


def test_a_close_that_a_caller_has_called_is_not_called_again(journal: Journal) -> None:
    program = lp.Program("ends")
    server = program.add_node(lp.CourierNode(closing_nodes.Closes, journal), label="server")
    program.add_node(lp.PyNode(closing_nodes.call, server, "close"), label="caller")

    lp.run(program, "test_mt")

    assert journal.lines == ["close", "of the constructor"]


def test_after_a_failure_nothing_is_called(journal: Journal) -> None:
    program = lp.Program("ends")
    program.add_node(lp.PyNode(closing_nodes.fail, journal), label="fails")

    with pytest.raises(lp.ProgramFailed, match="wrong"):
        lp.run(program, "test_mp")

    assert journal.lines == []


@KINDS
def test_one_that_raises_is_the_workers_failure_and_the_others_are_called(
    launch_type: str, journal: Journal
) -> None:
    program = lp.Program("ends")
    with program.group("fails"):
        node = lp.PyClassNode(closing_nodes.FailsAtTheEnd, journal)
        node.disable_run()
        program.add_node(node)

    with (
        pytest.raises(lp.ProgramFailed, match=r"fails-0 failed in stop.*the disk is full"),
        lp.launch(program, launch_type) as running,
    ):
        until(lambda: all(each.state == "running" for each in running.status()))

    assert journal.lines == ["of the constructor"]


def test_one_that_hangs_is_cut_off_and_named(
    journal: Journal, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(supervisor, "_EXIT_S", 0.5)
    program = lp.Program("ends")
    program.add_node(lp.PyClassNode(closing_nodes.HangsAtTheEnd, journal), label="hangs")
    program.add_node(lp.PyNode(lp.wait_for_stop), label="keeps")
    policy = lp.RestartPolicy(mode="never", stop_grace_s=0.1)

    with pytest.raises(lp.ProgramFailed, match="hangs-0 failed in stop") as failed:
        lp.run(program, "test_mp", restart=policy)

    assert "waited for close(), or a function given to lp.on_exit()" in failed.value.outcome.cause
    assert "in close" in Path(failed.value.log_path).read_text()


def test_in_a_block_of_a_test_it_is_called_at_the_end(journal: Journal) -> None:
    with lp.testing.worker():
        closing_nodes.Closes(journal)
        assert journal.lines == []

    assert journal.lines == ["of the constructor"]


def test_it_takes_a_function() -> None:
    with lp.testing.worker(), pytest.raises(TypeError, match="on_exit takes a function"):
        lp.on_exit("close")  # type: ignore[arg-type]


def test_a_colocation_that_is_stopped_before_it_has_opened_ends_in_good_order() -> None:
    colocation = RunColocated([], return_on_first_completed=False)

    with lp.testing.worker("colocation"):
        colocation.release()
        colocation.close()


def test_what_a_thread_has_served_is_gone_with_its_program_though_the_script_keeps_that() -> None:
    before = _replay_servers()
    program = lp.Program("served")
    tables = [lp.replay.Table.queue("rows", 10)]
    program.add_node(lp.ReplayNode(tables), label="replay")
    with lp.launch(program, "test_mt") as running:
        running.client("replay").insert(np.zeros(100_000), {"rows": 1.0})
        (served,) = [weakref.ref(server) for server in _replay_servers() - before]

    def is_gone() -> bool:
        gc.collect()
        return served() is None

    assert running.is_done
    until(is_gone, 20)


def _replay_servers() -> set[ReplayServer]:
    return {each for each in gc.get_objects() if isinstance(each, ReplayServer)}
