"""`save()` and `restore()` of an object: when they are called, with what, and when they are not ours."""

from __future__ import annotations

import os
import threading
import time
from pathlib import Path
from typing import Any

import pytest

import launchpad as lp
from launchpad.state.saved_states import SavedStates
from tests.helpers.programs import single
from tests.waiting import until

DEADLINE_S = 60
OFTEN = lp.RestartPolicy(backoff=0, save_every_s=0.02)


def run(node: type, *, launch_type: str = "test_mp", restart: Any = None, **options: Any) -> Any:
    """What its `run()` returns in a program of its own."""
    program = single(lp.PyClassNode(node), "node", restart=restart)
    return lp.run(program, launch_type, timeout_s=DEADLINE_S, **options)["node"][0]


class DiesWhenSaved:
    """Its first attempt is killed when what it has now has been saved beside its run(), by a coroutine."""

    def __init__(self) -> None:
        self.steps = 0

    def run(self) -> int:
        if lp.current().attempt == 1:
            self.steps = 41
            saved = SavedStates("", f"{lp.current().state.places.saved}/object")
            until(lambda: (saved.load() or (0, {}))[1] == {"steps": 41})
            os._exit(1)
        return self.steps + 1

    async def save(self) -> dict[str, int]:
        return {"steps": self.steps}

    async def restore(self, saved: dict[str, int]) -> None:
        self.steps = saved["steps"]


def test_an_object_is_saved_beside_its_run_and_restored_when_it_was_killed() -> None:
    assert run(DiesWhenSaved, restart=OFTEN) == 42


class Saved:
    """Counts, and is saved by a coroutine."""

    def __init__(self) -> None:
        self.count = 0

    def add(self) -> int:
        self.count += 1
        return self.count

    async def save(self) -> int:
        return self.count

    def restore(self, saved: int) -> None:
        self.count = saved


class FailsOnceServed(Saved):
    def set_courier_server(self, server: lp.courier.Server) -> None:
        raise OSError("no port")


def fail_once(client: lp.CourierClient[Saved]) -> None:
    client.add()
    if lp.current().attempt == 1:
        raise ValueError("once")
    lp.wait_for_stop()


def saving_threads() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == "launchpad-save"]


@pytest.mark.parametrize("colocated", [False, True])
def test_a_served_object_is_saved_periodically_until_its_attempt_ends(colocated: bool) -> None:
    node = lp.CourierNode(Saved)
    handle = node.create_handle()
    program = lp.Program("hooks")
    with program.group("node", restart=lp.RestartPolicy(scope="group", save_every_s=0.02)):
        program.add_node(lp.MultiThreadingColocation([node]) if colocated else node)
        program.add_node(lp.PyNode(fail_once, handle))

    with lp.launch(program, "test_mt") as running:
        until(lambda: [row.attempt for row in running.status()] == [2, 2])
        until(lambda: len(saving_threads()) == 1)

    assert not saving_threads()


def test_no_periodic_save_is_left_where_an_object_could_not_be_served() -> None:
    policy = lp.RestartPolicy(max_restarts=0, save_every_s=0.02)

    with pytest.raises(lp.ProgramFailed, match="no port"):
        lp.run(single(lp.CourierNode(FailsOnceServed), "node", restart=policy), "test_mt")

    assert not saving_threads()


class SavesSlowly:
    """Its first save, beside its methods, gives what was then; later than a second one, if that comes."""

    def __init__(self) -> None:
        self.count = 0
        self.is_saving, self.saves_again = threading.Event(), threading.Event()

    def add(self) -> None:
        assert self.is_saving.wait(DEADLINE_S)
        self.count += 1

    def save(self) -> int:
        count = self.count
        if self.is_saving.is_set():
            self.saves_again.set()
            return count
        self.is_saving.set()
        assert lp.stop_event().wait(DEADLINE_S)
        if self.saves_again.wait(0.5):
            until(SavedStates("", f"{lp.current().state.places.saved}/object").versions)
        return count


def test_what_a_periodic_save_has_begun_is_not_written_over_that_of_the_end(tmp_path: Path) -> None:
    program = single(
        lp.CourierNode(SavesSlowly), "node", restart=lp.RestartPolicy(save_every_s=0.02)
    )

    with lp.launch(program, "test_mt", state=tmp_path / "state") as running:
        running.client("node").add()

    for thread in saving_threads():
        thread.join(DEADLINE_S)
    saved = SavedStates("", str(tmp_path / "state" / "node-0" / "object"))
    assert (saved.load() or (0, None))[1] == 1


class FailsToSave:
    def __init__(self) -> None:
        self.calls = 0
        self.often = threading.Event()

    def run(self) -> int:
        assert self.often.wait(DEADLINE_S)
        return self.calls

    def save(self) -> None:
        self.calls += 1
        if self.calls == 3:
            self.often.set()
        raise OSError("no space")


def test_a_save_that_fails_is_logged_and_tried_again() -> None:
    running = lp.testing.run(
        single(lp.PyClassNode(FailsToSave), "node", restart=OFTEN), DEADLINE_S, "test_mp"
    )

    assert running.results("node")[0] >= 3
    log = running.logs("node-0")
    assert log.count("node-0 could not save itself") >= 3
    assert "OSError: no space" in log


class Model:
    """A model's save(path) and load(path) are not hooks."""

    def __init__(self) -> None:
        self.restored = "never"

    def run(self) -> str:
        return self.restored

    def save(self, path: str) -> None:
        raise AssertionError(path)

    def restore(self, path: str, strict: bool) -> None:
        raise AssertionError(path)


class Keeper:
    """Saves itself, into files of its own."""

    def __init__(self) -> None:
        self.restored = "never"

    def run(self) -> str:
        return self.restored

    def save(self) -> None:
        (lp.current().state_dir / "mine").write_text("saved")

    def restore(self) -> None:
        self.restored = (lp.current().state_dir / "mine").read_text()


class Giver(Keeper):
    """Gives what is to be saved, and takes it."""

    def save(self) -> str:  # type: ignore[override]
        return "given"

    def restore(self, saved: str) -> None:  # type: ignore[override]
        self.restored = saved


class GivesNothing(Giver):
    def save(self) -> None:  # type: ignore[override]
        return None


class MayTake(Giver):
    """Its hook can be called with and without."""

    def restore(self, saved: str | None = None) -> None:  # type: ignore[override]
        self.restored = saved or "without"


class MayTakeButSavesItself(MayTake):
    def save(self) -> None:  # type: ignore[override]
        Keeper.save(self)


NODES = [
    (Model, "never"),
    (Keeper, "saved"),
    (Giver, "given"),
    (GivesNothing, "never"),
    (MayTake, "given"),
    (MayTakeButSavesItself, "without"),
]


@pytest.mark.parametrize(("node", "restored"), NODES)
def test_the_next_launch_restores_what_was_saved(node: type, restored: str, tmp_path: Path) -> None:
    found = [run(node, launch_type="test_mt", state=tmp_path / "state") for _ in range(2)]

    assert found == ["never", restored]


@pytest.mark.parametrize("kind", [lp.PyClassNode, lp.CourierNode])
def test_what_was_stopped_before_it_was_open_has_nothing_to_save(kind: Any, tmp_path: Path) -> None:
    executable = kind(Giver).to_executable()

    with lp.testing.worker(state=tmp_path) as me:
        executable.save()
        executable.close()

        assert not me.is_resumed


class Part(Keeper):
    """One of two in a worker: saves what it is called, in both ways."""

    def __init__(self, name: str) -> None:
        super().__init__()
        self.name = name

    def save(self) -> str:  # type: ignore[override]
        (lp.current().state_dir / "mine").write_text(self.name)
        return self.name

    def restore(self, saved: str) -> None:  # type: ignore[override]
        super().restore()
        self.restored = f"{saved} {self.restored}"


def test_parts_of_a_worker_each_restore_what_they_have_saved(tmp_path: Path) -> None:
    program = lp.Program("hooks")
    parts = [lp.PyClassNode(Part, name) for name in "ab"]
    program.add_node(lp.MultiThreadingColocation(parts), label="both")

    found = [
        lp.run(program, "test_mp", timeout_s=DEADLINE_S, state=tmp_path / "state")["both"]
        for _ in range(2)
    ]

    assert found == [[("never", "never")], [("a a", "b b")]]


class FailsToSaveAtTheEnd:
    def run(self) -> str:
        return "done"

    def save(self) -> None:
        raise AssertionError("not asked for")


def test_without_a_folder_nothing_is_saved_at_the_end() -> None:
    assert run(FailsToSaveAtTheEnd, launch_type="test_mt") == "done"


class SavesForLong:
    def run(self) -> int:
        return lp.current().attempt

    def save(self) -> str:
        time.sleep(1.0)
        return "saved"


def test_a_save_at_the_end_may_take_longer_than_the_time_for_a_heartbeat(tmp_path: Path) -> None:
    policy = lp.RestartPolicy(heartbeat_s=0.3, backoff=0)

    assert run(SavesForLong, restart=policy, state=tmp_path) == 1
