"""What another user puts where our directories are, or will be, is refused; in ours he can read nothing."""

from __future__ import annotations

import functools
import json
import os
import socket
import stat
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import asdict
from pathlib import Path

import pytest

import launchpad as lp
from launchpad import __main__ as main
from launchpad.launch.rundir import claims, locations, record
from launchpad.state.own_state import OwnState
from launchpad.state.places import StatePlaces
from tests.helpers import other_user
from tests.helpers.other_user import UID, needs_root
from tests.helpers.programs import single

ROOT = Path(__file__).parents[2]


@pytest.fixture
def shared(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """What /tmp is to the launches of the test."""
    with other_user.shared_directory() as path:
        monkeypatch.setenv("TMPDIR", str(path))
        monkeypatch.setattr("tempfile.tempdir", None)
        monkeypatch.delenv("XDG_RUNTIME_DIR", raising=False)
        monkeypatch.delenv("LAUNCHPAD_LOGGING_DIR")
        yield path


def launch() -> lp.Running:
    return lp.testing.run(single(lp.PyNode(print, "ran"), "printer"))


def refusal() -> str:
    """Why a program cannot be launched."""
    with pytest.raises(lp.LaunchError) as caught:
        launch()
    return str(caught.value)


def make_theirs(path: Path) -> None:
    """A directory of another user's, open to all."""
    path.mkdir()
    path.chmod(0o777)
    os.chown(path, UID, -1)


def link_theirs(path: Path, target: Path) -> None:
    """A link of another user's."""
    path.symlink_to(target)
    os.lchown(path, UID, -1)


def names_below(directory: Path) -> list[str]:
    return sorted(str(path.relative_to(directory)) for path in directory.rglob("*"))


# What he made before us.


@needs_root
def test_sound_02_a_directory_for_logs_that_another_user_made_or_a_link_is_refused(
    shared: Path, tmp_path: Path
) -> None:
    logs, ours = shared / f"launchpad-{os.getuid()}-logs", tmp_path / "ours"
    ours.mkdir(mode=0o700)
    make_theirs(logs)
    of_directory = refusal()
    names = names_below(logs)
    logs.rmdir()
    link_theirs(logs, ours)
    of_link = refusal()

    assert f"no directory for logs: {logs}: it belongs to user {UID} (nobody)" in of_directory
    assert "set LAUNCHPAD_LOGGING_DIR to a directory of your own" in of_directory
    assert f"{logs}: it is a symbolic link; remove it" in of_link
    assert names == names_below(ours) == []


@needs_root
@pytest.mark.parametrize("what", ["directory", "link"])
def test_sound_02_logs_and_state_are_not_put_below_a_directory_that_another_user_may_rename(
    shared: Path, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    where = shared / "theirs"
    make_theirs(where)
    (shared / "theirs" / "ours").mkdir(mode=0o700)
    if what == "link":
        where = shared / "link"
        link_theirs(where, shared / "theirs")
    monkeypatch.setenv("LAUNCHPAD_LOGGING_DIR", str(where / "ours"))

    assert f"no directory for logs: {where}: it" in refusal()
    assert names_below(shared / "theirs" / "ours") == []


@pytest.mark.parametrize("mode", [0o777, 0o757])
def test_sound_02_a_directory_above_in_which_all_may_rename_is_refused(
    shared: Path, monkeypatch: pytest.MonkeyPatch, mode: int
) -> None:
    (shared / "open").mkdir()
    (shared / "open").chmod(mode)
    monkeypatch.setenv("LAUNCHPAD_LOGGING_DIR", str(shared / "open" / "logs"))

    assert f"{shared / 'open'}: others may write to it (mode {mode:o})" in refusal()


def test_sound_02_where_a_link_of_ours_leads_logs_may_be(
    shared: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "scratch").mkdir()
    (tmp_path / "logs").symlink_to("scratch")
    monkeypatch.setenv("LAUNCHPAD_LOGGING_DIR", str(tmp_path / "logs"))

    launch()

    assert len(list((tmp_path / "scratch").glob("single-*/printer-0.log"))) == 1


@needs_root
def test_sound_02_the_runtime_directory_and_the_claims_are_not_below_one_of_another_user(
    shared: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    theirs = shared / "theirs"
    make_theirs(theirs)

    for variable in ("LAUNCHPAD_RUNTIME_DIR", "LAUNCHPAD_CLAIMS_DIR"):
        (theirs / variable).mkdir(mode=0o700)
        monkeypatch.setenv(variable, str(theirs / variable))

    with pytest.raises(lp.LaunchError, match=f"{theirs}: it belongs to .* LAUNCHPAD_RUNTIME_DIR"):
        locations.runtime_base(8, ["control.socket"])
    with (
        pytest.raises(lp.LaunchError, match=f"{theirs}: it belongs to .* LAUNCHPAD_CLAIMS_DIR"),
        claims.claim_table(),
    ):
        pass

    assert names_below(theirs) == ["LAUNCHPAD_CLAIMS_DIR", "LAUNCHPAD_RUNTIME_DIR"]


@needs_root
def test_sound_02_the_runtime_directory_of_another_user_is_passed_over(
    shared: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("LAUNCHPAD_RUNTIME_DIR")
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(shared))
    make_theirs(shared / "launchpad")

    base = locations.runtime_base(8, ["control.socket"])

    assert base == shared / f"launchpad-{os.getuid()}"
    assert base in locations.private_runtime_bases()
    assert shared / "launchpad" not in locations.private_runtime_bases()


def test_sound_02_a_directory_for_logs_that_others_could_only_read_is_closed(
    shared: Path,
) -> None:
    logs = shared / f"launchpad-{os.getuid()}-logs"
    logs.mkdir()
    logs.chmod(0o755)

    launch()

    assert stat.S_IMODE(logs.stat().st_mode) == 0o700


# The state of a worker, on another host than the launcher's too, where no launch has checked anything.


def state_dir(path: Path) -> Path:
    places = StatePlaces(str(path), str(path))
    return OwnState("a-0", places).directory()


@needs_root
@pytest.mark.parametrize("above", [0, 1, 2, 3])
def test_sound_02_a_worker_is_given_no_state_that_another_user_could_have_written(
    shared: Path, above: int
) -> None:
    state = shared / "logs" / "run" / "state" / "a-0"
    theirs = [state, *state.parents][above]
    if above < 3:
        theirs.parent.mkdir(mode=0o700, parents=True)
        theirs.parent.chmod(0o1777)
    make_theirs(theirs)

    with pytest.raises(PermissionError, match=f"it belongs to user {UID}.*{theirs}'"):
        state_dir(state)
    if above == 3:
        theirs.rmdir()
        link_theirs(theirs, shared)
        with pytest.raises(PermissionError, match="symbolic link of user"):
            state_dir(state)


def test_sound_02_a_volume_of_a_pod_may_keep_state_though_it_is_open_to_all(
    shared: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    volume = shared / "volume"
    volume.mkdir()
    volume.chmod(0o777)
    monkeypatch.setattr("os.path.ismount", lambda path: Path(path) == volume)

    with pytest.raises(PermissionError, match="others may write to it"):
        state_dir(volume)
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "10.0.0.1")

    assert state_dir(volume) == volume
    assert state_dir(volume / "a-0").stat().st_mode & 0o777 == 0o700


@needs_root
def test_sound_02_a_volume_of_a_pod_may_be_on_the_file_system_of_its_image(shared: Path) -> None:
    volume = shared / "volume"
    volume.mkdir()
    volume.chmod(0o777)
    source = (
        f"from tests.launch.test_other_users import Path, state_dir; state_dir(Path('{volume}'))"
    )
    script = f'mount --bind {volume} {volume} && exec {sys.executable} -c "{source}"'
    command = ["unshare", "--mount", "sh", "-c", script]
    pod = {**os.environ, "KUBERNETES_SERVICE_HOST": "10.0.0.1"}

    outside = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=30)
    inside = subprocess.run(command, cwd=ROOT, env=pod, capture_output=True, text=True, timeout=30)

    assert "others may write to it" in outside.stderr
    assert inside.returncode == 0, inside.stderr


# What he puts into it later, or tries to read.


@needs_root
def test_sound_02_another_user_reads_and_writes_nothing_of_a_run(
    shared: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LAUNCHPAD_RUNTIME_DIR", str(shared / "runtime"))
    running = lp.launch(single(lp.PyNode(lp.wait_for_stop)), "test_mt")
    (runtime,) = (shared / "runtime").iterdir()
    logs = running.log_directory

    def connect() -> None:
        with socket.socket(socket.AF_UNIX) as sock:
            sock.connect(str(runtime / "control.socket"))

    tries: list[Callable[[], object]] = [connect]
    for path in (runtime / "run.json", runtime / "control.token", logs / "run.json"):
        assert path.exists()
        tries.append(path.read_bytes)
    for directory in (runtime, logs, runtime.parent, logs.parent):
        tries += [functools.partial(os.listdir, directory), (directory / "his").touch]
        tries.append(functools.partial(directory.rename, shared / "his"))

    def try_all() -> None:
        for act in tries:
            with pytest.raises(PermissionError):
                act()

    with running:
        other_user.does(try_all)
        for path in (*runtime.parent.rglob("*"), *logs.parent.rglob("*")):
            assert not stat.S_IMODE(path.lstat().st_mode) & 0o077, path


# The commands.


@needs_root
@pytest.mark.parametrize("name", ["ps", "stop", "logs", "stacks"])
def test_sound_02_the_commands_believe_no_record_in_a_directory_of_another_user(
    shared: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    name: str,
) -> None:
    base = shared / "runtime"
    monkeypatch.setenv("LAUNCHPAD_RUNTIME_DIR", str(base))
    make_theirs(base)

    code = main.main([name, *["victim"] * (name != "ps"), *["waiter"] * (name == "logs")])

    said = capsys.readouterr().err
    assert code == 1
    assert f"{base}: it belongs to user {UID}" in said
    assert "set LAUNCHPAD_RUNTIME_DIR" in said


@needs_root
def test_sound_02_logs_of_a_run_that_has_ended_are_not_taken_from_a_directory_of_another_user(
    shared: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    base = shared / f"launchpad-{os.getuid()}-logs"
    forged = record.RunRecord(
        "victim-1121-120000-abcd", "victim", "local_mt", 1, 0.0, "/nowhere", "/etc", {"a-0": "a"}
    )
    make_theirs(base)
    make_theirs(base / forged.run_id)
    (base / forged.run_id / record.NAME).write_text(json.dumps(asdict(forged)))
    os.chown(base / forged.run_id / record.NAME, UID, -1)

    code = main.main(["logs", "victim", "a"])

    assert code == 1
    assert f"{base}: it belongs to user {UID}" in capsys.readouterr().err
