"""What becomes of user code that is interrupted by a stop, and of the stop if that code catches all."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import pytest

import launchpad as lp
from tests.helpers import stopping_nodes
from tests.waiting import until

Node = Callable[[Path], None]
SOON_S = 8.0  # the grace is 10 s


@pytest.fixture
def said_by(tmp_path: Path) -> Callable[..., list[str]]:
    """Stops a program of these nodes, in groups that have their names; returns what each has said."""

    def said_by(launch_type: str, *nodes: Node) -> list[str]:
        program = lp.Program("interrupted")
        folders = []
        for node in nodes:
            folder = tmp_path / node.__name__
            folder.mkdir()
            folders.append(folder)
            program.add_node(lp.PyNode(node, folder), label=node.__name__)
        running = lp.launch(program, launch_type)
        for folder in folders:
            until((folder / "up").exists, within_s=30)
        began = time.monotonic()
        running.stop()
        took_s = time.monotonic() - began

        assert {status.state for status in running.status()} == {"stopped"}
        assert running.exit_status() == 0  # nothing was ended by force
        assert took_s < SOON_S
        files = [folder / "said" for folder in folders]
        return [file.read_text() if file.exists() else "" for file in files]

    return said_by


@pytest.mark.parametrize("launch_type", ["local_mt", "local_mp"])
def test_code_that_catches_all_is_interrupted_again_until_it_ends_and_its_place_is_named(
    launch_type: str, said_by, capfd: pytest.CaptureFixture[str]
) -> None:
    said_by(launch_type, stopping_nodes.catches_all)

    place = f"catches_all ({stopping_nodes.__file__}, line "
    note = f"catches_all-0 is to stop, has caught lp.Stopped in {place}"
    assert capfd.readouterr().out.count(note) == 1


def test_a_member_of_a_colocation_that_catches_all_is_named_as_well(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    member = lp.PyNode(stopping_nodes.catches_all, tmp_path)
    program = lp.Program("interrupted")
    program.add_node(lp.MultiThreadingColocation([member]), label="colocation")
    running = lp.launch(program, "local_mp")
    until((tmp_path / "up").exists, within_s=30)

    running.stop()

    assert "colocation-0 is to stop, has caught lp.Stopped in catches_all" in capfd.readouterr().out


@pytest.mark.parametrize("launch_type", ["local_mt", "local_mp"])
def test_what_cleans_up_or_has_caught_the_stop_by_its_name_is_not_interrupted_again(
    launch_type: str, said_by, capfd: pytest.CaptureFixture[str]
) -> None:
    heard = said_by(
        launch_type,
        stopping_nodes.cleans_up_slowly,
        stopping_nodes.saves_after_the_stop,
        stopping_nodes.runs_a_loop,
        stopping_nodes.runs_a_loop_without_tasks,
        stopping_nodes.exits_when_it_is_interrupted,
        stopping_nodes.raises_an_error_of_its_own,
    )

    assert heard == ["cleaned up\nclosed\n", "saved\n", "cleaned up\n", "closed\n", "", ""]
    assert "caught" not in capfd.readouterr().out


@pytest.mark.leaks_by_nature  # libuv keeps a pipe
@pytest.mark.parametrize("launch_type", ["local_mt", "local_mp"])
def test_a_loop_in_c_is_ended_by_the_cancellation_of_its_tasks(launch_type: str, said_by) -> None:
    pytest.importorskip("uvloop")

    assert said_by(launch_type, stopping_nodes.runs_a_loop_in_c) == ["cleaned up\n"]


def test_a_server_in_a_loop_that_handles_sigterm_ends_as_it_does_at_one(said_by) -> None:
    heard = said_by("local_mp", stopping_nodes.runs_a_loop_that_handles_sigterm)

    assert heard == ["ended in good order\nand was not killed\n"]


def test_threads_that_are_stopped_in_calls_leave_no_shared_memory_and_no_descriptor() -> None:
    with lp.testing.nothing_left_over(10.0):
        for _ in range(10):
            program = lp.Program("halves")
            server = program.add_node(lp.CourierNode(stopping_nodes.Halves), label="server")
            with program.group("asks"):
                for _ in range(4):
                    program.add_node(lp.PyNode(stopping_nodes.ask_for_ever, server))

            with lp.launch(program, "test_mt") as running:
                until(running.client("server").has_answered)
