"""Saved states as files: whole or not at all, the last n, and what is said of those that are not whole."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import launchpad as lp
from launchpad.state.fence import AttemptId, Fence
from launchpad.state.saved_states import SavedStates
from tests.helpers import other_user, scripts


@pytest.fixture(params=["directory", "URL"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return str(tmp_path / "w-0") if request.param == "directory" else f"file://{tmp_path}/w-0"


@pytest.fixture
def states(place: str) -> SavedStates:
    return SavedStates("w-0", place)


@pytest.fixture
def files(tmp_path: Path) -> Path:
    """Where both kinds put their files."""
    return tmp_path / "w-0"


def save(states: SavedStates, *values: Any, keep: int = 2) -> list[int]:
    return [states.save(value, None, keep) for value in values]


def test_the_last_of_those_that_were_saved_is_loaded_and_so_many_stay(states: SavedStates) -> None:
    assert states.load() is None
    assert save(states, "a", "b", {"weights": np.arange(3)}, keep=2) == [1, 2, 3]

    number, value = states.load() or (0, None)

    assert (number, states.versions()) == (3, [2, 3])
    np.testing.assert_array_equal(value["weights"], np.arange(3))
    assert states.load(2) == (2, "b")


@pytest.mark.parametrize("keep", [0, 1.5], ids=repr)
def test_a_number_of_versions_to_keep_that_counts_none_is_refused(
    states: SavedStates, keep: Any
) -> None:
    with pytest.raises(ValueError, match="keep is how many versions stay"):
        states.save("a", None, keep)


def test_a_version_that_is_named_drops_those_above_it(states: SavedStates) -> None:
    save(states, *"abcd", keep=4)

    assert states.save("other", 2, 4) == 2

    assert (states.versions(), states.load()) == ([1, 2], (2, "other"))
    says = r"no saved state of version 4 in .*, only \[1, 2\]"
    with pytest.raises(lp.StateError, match=says):
        states.load(4)


class Killed(BaseException):
    """In place of SIGKILL."""


def test_what_a_version_replaces_is_not_loaded_after_a_kill(
    states: SavedStates, monkeypatch: pytest.MonkeyPatch
) -> None:
    for steps in range(6):  # it dies when so many files have been deleted or renamed
        for number, value in enumerate("abcd", 1):
            states.save(value, number, 4)
        left = steps

        def once_fewer(call: Any) -> Any:
            def counted(*args: Any, **kwargs: Any) -> Any:
                nonlocal left
                left -= 1
                if left < 0:
                    raise Killed
                return call(*args, **kwargs)

            return counted

        with monkeypatch.context() as patch, contextlib.suppress(Killed):
            for name in ("rename", "unlink", "remove"):
                patch.setattr(os, name, once_fewer(getattr(os, name)))
            states.save("other", 2, 4)

        assert states.load() in [(4, "d"), (3, "c"), (2, "b"), (2, "other")]
        assert states.load(2) == (2, "b") or states.versions() == [1, 2]
    assert states.load() == (2, "other")


@pytest.mark.parametrize(
    "spoilt",
    [
        pytest.param(lambda content: content[:-3], id="torn"),
        pytest.param(lambda content: content.replace(b"new", b"NEW"), id="damaged"),
        pytest.param(lambda content: b"", id="empty"),
    ],
)
def test_a_file_that_is_not_whole_is_named_and_the_one_before_is_taken(
    states: SavedStates, files: Path, caplog: pytest.LogCaptureFixture, spoilt: Any
) -> None:
    save(states, "old", "new")
    file = files / "state-000002.pickle"
    file.write_bytes(spoilt(file.read_bytes()))

    assert states.load() == (1, "old")

    (record,) = caplog.records
    assert record.getMessage().startswith("w-0: ")
    assert "state-000002.pickle is passed over: it" in record.getMessage()
    assert states.versions() == [1]
    with pytest.raises(lp.StateError, match=r"state-000002\.pickle is passed over"):
        states.load(2)
    assert save(states, "newer") == [3]  # the spoilt one's number is not used again
    assert states.load() == (3, "newer")


class Unpicklable:
    def __reduce__(self) -> Any:
        raise ValueError("not this")


def test_what_cannot_be_pickled_leaves_what_was_saved(states: SavedStates, files: Path) -> None:
    save(states, "old")
    large = np.arange(1_000_000)  # so that some of it is written before

    for version in (None, 0):
        with pytest.raises(ValueError, match="not this"):
            states.save([large, Unpicklable()], version, 2)

        assert states.load() == (1, "old")
        assert os.listdir(files) == ["state-000001.pickle"]


class Renamed:
    pass


def test_a_whole_state_that_cannot_be_unpickled_is_an_error(
    states: SavedStates, monkeypatch: pytest.MonkeyPatch
) -> None:
    save(states, "old", Renamed())
    monkeypatch.delattr(f"{__name__}.Renamed")

    says = r"000002\.pickle, which is whole: AttributeError.*Is each"
    with pytest.raises(lp.StateError, match=says):
        states.load()


def test_what_an_attempt_that_was_killed_had_begun_to_write_is_swept(tmp_path: Path) -> None:
    states = SavedStates("w-0", str(tmp_path))
    save(states, "old")
    (tmp_path / ".being-written-77-abcd").write_bytes(b"half")

    save(states, "new")

    assert sorted(os.listdir(tmp_path)) == ["state-000001.pickle", "state-000002.pickle"]


class CallsWhenPickled:
    """Something happens while it is being saved."""

    def __init__(self, call: Callable[[], object]) -> None:
        self.call = call

    def __reduce__(self) -> Any:
        self.call()
        return str, ("slow",)


@pytest.mark.parametrize("version", [None, 0, 2])
def test_an_attempt_that_ends_while_it_saves_does_not_disturb_what_its_next_one_saves(
    states: SavedStates, place: str, files: Path, version: int | None
) -> None:
    fence = Fence()
    ended = SavedStates("w-0", place, fence)
    save(states, "before")

    def next_attempt() -> None:
        fence.close()
        save(states, "next")

    with pytest.raises(lp.Stopped):
        ended.save(CallsWhenPickled(next_attempt), version, 1)

    assert states.load() == (2, "next")
    assert sorted(os.listdir(files)) == ["state-000001.pickle", "state-000002.pickle"]


def attempts(place: str) -> tuple[SavedStates, SavedStates]:
    """Return the saved states of two attempts of a run, on hosts that know nothing of each other."""
    first, second = (SavedStates("w-0", place, Fence(AttemptId("run", n))) for n in (1, 2))
    return first, second


def test_an_attempt_on_a_host_that_was_frozen_saves_nothing_once_the_next_one_has_loaded(
    place: str,
) -> None:
    first, second = attempts(place)
    save(first, "before")

    assert second.load() == (1, "before")
    with pytest.raises(lp.Stopped):
        save(first, "late")
    with pytest.raises(lp.Stopped):
        first.load()

    assert save(second, "after") == [2]
    assert second.load() == (2, "after")


def test_an_attempt_that_is_frozen_in_its_first_save_does_not_finish_it_beside_the_next_one(
    place: str,
) -> None:
    first, second = attempts(place)

    with pytest.raises(lp.Stopped):
        save(first, CallsWhenPickled(lambda: save(second, "next")))

    assert second.load() == (1, "next")


def test_the_first_attempt_of_a_later_run_saves_where_several_attempts_of_another_did(
    place: str,
) -> None:
    _, second = attempts(place)
    save(second, "earlier")
    later = SavedStates("w-0", place, Fence(AttemptId("later run", 1)))

    assert later.load() == (1, "earlier")
    assert save(later, "later") == [2]


@pytest.mark.parametrize(
    "torn", ["", '{"run_id": "run", "num', "[2]", '{"run_id": "run", "number": null}']
)
def test_a_torn_file_with_the_latest_attempt_lets_no_attempt_save(
    place: str, files: Path, torn: str
) -> None:
    first, second = attempts(place)
    save(second, "of the second")
    (files / ".attempt.json").write_text(torn)

    for action in (lambda: save(first, "late"), first.load, second.load):
        with pytest.raises(lp.StateError) as error:
            action()
        assert str(files) in str(error.value)
        assert (
            f".attempt.json there should say which attempt is the latest, and contains {torn.encode()!r}"
            in str(error.value)
        )
        assert "Delete it when no worker of an earlier launch runs any more" in str(error.value)

    (files / ".attempt.json").unlink()
    assert second.load() == (1, "of the second")


def test_an_ended_attempt_sweeps_nothing_of_its_next_one(states: SavedStates, place: str) -> None:
    fence = Fence()
    ended = SavedStates("w-0", place, fence)
    fence.close()

    def save_late() -> None:
        with pytest.raises(lp.Stopped):
            ended.save("late", None, 1)

    save(states, CallsWhenPickled(save_late))

    assert states.load() == (1, "slow")


def test_a_full_disk_leaves_the_old_state_and_a_named_error(small_disk: Path) -> None:
    small_disk.chmod(0o700)
    states = SavedStates("w-0", str(small_disk / "w-0"))
    save(states, "old")
    says = (
        r"w-0 cannot save its state in .*w-0: No space left on device; what was saved before is"
        r" untouched\. Make room, or save less often or less\."
    )

    with pytest.raises(lp.StateError, match=says):
        states.save(np.random.default_rng(0).random(100_000), None, 2)

    assert states.load() == (1, "old")
    assert os.listdir(small_disk / "w-0") == ["state-000001.pickle"]
    assert save(states, "new") == [2]


@pytest.mark.skipif(os.geteuid() != 0, reason="needs to be root, to be another user")
def test_a_state_that_another_user_may_have_written_is_not_unpickled(tmp_path: Path) -> None:
    place = tmp_path / "w-0"
    states = SavedStates("w-0", str(place))
    save(states, "mine")
    os.chown(place, other_user.UID, -1)

    with pytest.raises(lp.StateError, match=r"cannot load its state.*belongs to user"):
        states.load()


def test_threads_of_a_worker_save_one_after_the_other(tmp_path: Path) -> None:
    with lp.testing.worker(state=tmp_path) as me:
        with ThreadPoolExecutor(4) as threads:
            for number in range(40):
                threads.submit(lp.current().save, number)

        assert me.saved_versions() == [39, 40]


SCRIPT = """
import sys
import launchpad as lp

class Model:
    def __init__(self, steps):
        self.steps = steps
{more}

def work():
    model = lp.current().load(default=None)
    if model is None:
        lp.current().save([Model(3), Model])
        return "saved"
    kept, kind = model
    return [kept.steps, isinstance(kept, Model), kind is Model, getattr(kept, "twice", lambda: None)()]

program = lp.Program("edited")
program.add_node(lp.PyNode(work), label="work")
if __name__ == "__main__":
    print(lp.run(program, "local_mp", state=sys.argv[1])["work"])
"""


def test_a_class_of_the_script_may_be_edited_between_two_launches(tmp_path: Path) -> None:
    state = str(tmp_path / "state")
    shown = []
    for more in ("", "    def twice(self): return 2 * self.steps"):
        ended = scripts.run(scripts.write(tmp_path, SCRIPT.format(more=more)), state)
        assert ended.returncode == 0, ended.stderr
        shown.append(ended.stdout.splitlines()[-1])  # a slow start is reported before

    assert shown == ["['saved']", "[[3, True, True, 6]]"]
