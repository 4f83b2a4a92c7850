"""Which directories count as ours alone: their modes, and those above them."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

import launchpad
from launchpad.courier.security import private_directory
from tests.helpers import other_user
from tests.helpers.other_user import needs_root


def test_it_is_made_with_those_above_it_and_closed_to_others(tmp_path) -> None:
    path = tmp_path / "a" / "b"

    private_directory.make_private(path)

    assert [p.stat().st_mode & 0o777 for p in (path, path.parent)] == [0o700, 0o700]


def test_a_descriptor_leads_to_what_was_checked_whatever_is_put_in_its_place(tmp_path) -> None:
    fd = private_directory.open_private(tmp_path / "ours", make=True)
    (tmp_path / "ours").rename(tmp_path / "renamed")
    (tmp_path / "ours").mkdir()

    os.mkdir("run", 0o700, dir_fd=fd)
    os.close(fd)

    assert (tmp_path / "renamed" / "run").is_dir()


@pytest.mark.parametrize("mode", [0o777, 0o703, 0o1777])
def test_one_that_others_may_write_to_is_refused(tmp_path, mode: int) -> None:
    tmp_path.chmod(mode)

    with pytest.raises(PermissionError, match="others may"):
        private_directory.open_private(tmp_path, close_to_others=True)

    assert tmp_path.stat().st_mode & 0o7777 == mode


@pytest.mark.parametrize("mode", [0o710, 0o755, 0o701])
def test_one_that_others_may_look_into_is_refused_or_closed(tmp_path, mode: int) -> None:
    tmp_path.chmod(mode)

    with pytest.raises(PermissionError, match="others may look into it"):
        private_directory.make_private(tmp_path)
    os.close(private_directory.open_private(tmp_path, close_to_others=True))

    assert tmp_path.stat().st_mode & 0o777 == 0o700


def test_links_are_followed_on_the_way_and_not_at_the_end(tmp_path) -> None:
    (tmp_path / "real" / "ours").mkdir(mode=0o700, parents=True)
    (tmp_path / "link").symlink_to("real")
    (tmp_path / "real" / "last").symlink_to("../real/ours")

    private_directory.make_private(tmp_path / "link" / "ours")
    with pytest.raises(PermissionError, match=r"symbolic link; remove it, .*\.\./real/ours"):
        private_directory.make_private(tmp_path / "link" / "last")
    private_directory.check_unchangeable(tmp_path / "link" / "last")


def test_what_is_no_directory_is_an_error_and_nothing_is_made_unasked(tmp_path) -> None:
    (tmp_path / "file").touch()
    (tmp_path / "circle").symlink_to("circle")

    for path in (tmp_path / "file", tmp_path / "file" / "below"):
        with pytest.raises(NotADirectoryError):
            private_directory.make_private(path)
    with pytest.raises(OSError, match="Too many levels"):
        private_directory.make_private(tmp_path / "circle" / "below")
    with pytest.raises(FileNotFoundError):
        private_directory.open_private(tmp_path / "new")

    assert {path.name for path in tmp_path.iterdir()} == {"file", "circle"}


@needs_root
def test_a_directory_may_be_writable_for_the_group_of_this_user_alone(tmp_path) -> None:
    tmp_path.chmod(0o770)
    private_directory.check_unchangeable(tmp_path)

    os.chown(tmp_path, -1, other_user.UID)

    with pytest.raises(PermissionError, match="others may write to it"):
        private_directory.check_unchangeable(tmp_path)


def test_no_other_module_makes_directories_in_places_that_it_has_not_checked() -> None:
    checked = {
        "courier/security/private_directory.py",
        "courier/transport/unix.py",  # checked right after
        "launch/backends/slurm/job.py",  # in the user's home folder
        "launch/backends/ssh/bootstrap.py",  # a new folder with a random name
        "launch/rundir/directory.py",  # in bases that were checked
        "state/atomic_folder.py",  # in object stores
        "state/lock.py",
    }
    package = Path(launchpad.__file__).parent
    makes = ("mkdir(", "makedirs(", "mkdtemp(", "TemporaryDirectory(")
    found = {
        str(path.relative_to(package))
        for path in package.rglob("*.py")
        if any(word in path.read_text() for word in makes)
    }

    assert found <= checked
