"""Two launches do not save into one folder."""

from __future__ import annotations

import json
import os
import signal
import threading
from dataclasses import asdict
from pathlib import Path

import pytest

import launchpad as lp
from launchpad.state import lock
from tests.helpers import scripts
from tests.helpers.programs import single
from tests.waiting import until

SCRIPT = """
import pathlib, sys, time
import launchpad as lp

def work():
    pathlib.Path(sys.argv[2]).write_text("up")
    time.sleep(600)

program = lp.Program("holder")
program.add_node(lp.PyNode(work), label="work")
if __name__ == "__main__":
    lp.launch(program, "local_mp", state=sys.argv[1]).wait()
"""


OTHER = single(lp.PyNode(lambda: "done"), "work")


@pytest.fixture(params=["directory", "URL"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    folder = tmp_path / "state"
    return str(folder) if request.param == "directory" else f"file://{folder}"


def test_a_folder_is_free_again_when_its_launch_was_killed(place: str, tmp_path: Path) -> None:
    process = scripts.start(scripts.write(tmp_path, SCRIPT), place, str(tmp_path / "up"))
    until((tmp_path / "up").exists)

    with pytest.raises(lp.LaunchError) as refused:
        lp.launch(OTHER, "test_mp", state=place)
    os.kill(process.pid, signal.SIGKILL)
    process.communicate()

    assert f"state={place!r} is in use by program 'holder', run " in str(refused.value)
    assert f"process {process.pid} on " in str(refused.value)

    def is_free() -> bool:  # its workers, which hold it too, are ended by now or soon
        try:
            return lp.run(OTHER, "test_mp", state=place) == {"work": ["done"]}
        except lp.LaunchError as error:
            if "is in use by program 'holder'" not in str(error):
                raise
            return False

    until(is_free)


def test_who_holds_a_folder_is_looked_at_again_where_it_is_not_there_yet(tmp_path: Path) -> None:
    assert not lock.is_held_by(str(tmp_path), "r-1", within_s=0)
    (tmp_path / lock.NAME).write_text("")  # as NFS may show it to another host
    holder = json.dumps(asdict(lock.Holder.here("r-1", "other")))
    late = threading.Timer(0.3, (tmp_path / lock.NAME).write_text, [holder])
    late.start()

    assert lock.is_held_by(str(tmp_path), "r-1", within_s=30)
    assert not lock.is_held_by(str(tmp_path), "r-2", within_s=0)
    late.join()


def test_the_holder_of_a_folder_is_forced_to_the_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    forced: list[bytes] = []

    def fsync(file: int) -> None:
        forced.append(os.pread(file, 1 << 16, 0))

    monkeypatch.setattr(os, "fsync", fsync)

    lock.hold(str(tmp_path), lock.Holder.here("r-1", "other"), lambda run: False).release()

    assert any(b'"r-1"' in content for content in forced)


def test_an_object_that_another_host_has_left_is_the_users_to_delete(tmp_path: Path) -> None:
    left = {**asdict(lock.Holder.here("r-1", "other")), "host": "elsewhere"}
    (tmp_path / "lock.json").write_text(json.dumps(left))

    with pytest.raises(
        lp.LaunchError, match=r"on elsewhere.*; if it has ended, delete file://.*lock"
    ):
        lp.launch(OTHER, "test_mt", state=f"file://{tmp_path}")

    assert json.loads((tmp_path / "lock.json").read_text())["host"] == "elsewhere"


@pytest.mark.parametrize(
    ("place", "says"),
    [
        ("{}/file/inside", r"state='.*/file/inside' cannot be used: "),
        ("gibberish://a", r"state='gibberish://a'.*pip install fsspec"),
    ],
)
def test_a_place_that_cannot_be_used_is_refused(place: str, says: str, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")

    with pytest.raises((lp.LaunchError, lp.StateError), match=says):
        lp.launch(OTHER, "test_mp", state=place.format(tmp_path))
