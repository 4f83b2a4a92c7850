"""A class run alone, as if it were in a worker."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

import launchpad as lp
from tests.helpers import group_nodes
from tests.helpers.programs import single


def test_a_class_runs_alone_and_a_launch_goes_on_from_there(tmp_path: Path) -> None:
    with lp.testing.worker("progress", state=tmp_path):
        assert group_nodes.Progress(3).run() == [0, 1, False, [2, 3]]
    with lp.testing.worker("progress", state=tmp_path, attempt=2):
        assert group_nodes.Progress(5).run() == [3, 2, True, [4, 5]]
    program = single(lp.PyClassNode(group_nodes.Progress, 6), "progress")

    assert lp.run(program, "test_mt", timeout_s=60, state=tmp_path)["progress"][0][0] == 5


def test_it_is_who_it_was_said_to_be_also_in_threads_that_it_starts(tmp_path: Path) -> None:
    with lp.testing.worker("rank", rank=1, of=3, state=tmp_path):
        names: list[str] = []
        thread = threading.Thread(target=lambda: names.append(lp.current().name))
        thread.start()
        thread.join()
        me = lp.current()
        (me.group_dir / "shared").write_text("x")

        assert names == ["rank-1"]
        assert (me.label, me.replica_index, me.num_replicas) == ("rank", 1, 3)
        assert not lp.stop_event().is_set()
        stop = lp.stop_event()

    assert stop.is_set()  # a thread that it has left ends
    with lp.testing.worker("rank", rank=0, of=3, state=tmp_path):
        assert (lp.current().group_dir / "shared").exists()
    with pytest.raises(lp.NotRunningError):
        lp.current()


def test_without_a_folder_nothing_can_be_saved() -> None:
    with lp.testing.worker(), pytest.raises(lp.NotRunningError, match="has no place for state"):
        lp.current().save(1)
    with lp.testing.worker() as me:
        assert (me.load(default="initial"), me.saved_versions()) == ("initial", [])
    with (
        pytest.raises(ValueError, match="rank=2 is no replica of 2"),
        lp.testing.worker(rank=2, of=2),
    ):
        pass


def test_beside_a_url_there_is_no_directory_and_the_error_says_so(tmp_path: Path) -> None:
    with lp.testing.worker(state=f"file://{tmp_path}") as me:
        me.save(1)
        with pytest.raises(
            lp.NotRunningError, match=r"no state_dir beside file://.*: name a folder"
        ):
            _ = me.state_dir


def test_a_worker_without_others_passes_each_barrier_and_one_of_several_none() -> None:
    with lp.testing.worker():
        for _ in range(2):
            lp.barrier("epoch", timeout_s=0)
    with (
        lp.testing.worker(of=2),
        pytest.raises(
            lp.NotRunningError, match=r"barrier 'epoch': .*\(of=2\) has no other workers"
        ),
    ):
        lp.barrier("epoch", timeout_s=60)
