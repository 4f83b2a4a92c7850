"""Directories in which no other user can put, read or replace anything.

    /         root's, closed to writing by others
    └ tmp     root's; others may write to it, but it is sticky, so that only we can rename our entries
      └ launchpad-1000-logs     ours, mode 0700, no symbolic link

Rules:
1. The directory itself belongs to us and is closed to others. If its name is a symbolic link, it is refused.
2. In each directory above it, no other user can rename our entries: the directory belongs to us or to root,
   and others can't write to it unless it is sticky. A symbolic link on the way belongs to us or to root, and
   the directories that it leads through meet the same rule.
3. The directories are checked from `/` down. So each name is looked up where only we and root can change what
   it leads to, and the result stays true while it is used.
"""

from __future__ import annotations

import contextlib
import errno
import functools
import os
import stat
from pathlib import Path

_MOST_LINKS = 40
_OPEN = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_ALL_UIDS = (1 << 32) - 1
_MOUNT_POINT = 4
"""The field in a line of /proc/self/mountinfo. Blanks in it are escaped, but volumes of pods have none."""


def open_private(path: Path, *, make: bool = False, close_to_others: bool = False) -> int:
    """Open a directory that no other user can read or change, and return its descriptor.

    Example:
        fd = open_private(Path("/tmp/launchpad-1000"), make=True)
        os.mkdir("run-1", 0o700, dir_fd=fd)

    Args:
        make: Create the directory, and those above it, if they don't exist.
        close_to_others: If others can read the directory but not write to it, change its mode to 0700
            instead of raising.

    Raises:
        PermissionError: Another user could change or read the directory's contents. `filename` is the
            directory at fault, this one or one above it. `strerror` says why, and what to do.
        OSError: The directory doesn't exist, or can't be created.
    """
    fd = open_unchangeable(path, make=make, is_link_followed=False)
    try:
        status = os.fstat(fd)
        if _is_volume_of_a_pod(path):
            return fd
        if status.st_uid != os.geteuid():
            raise _refusal(path, _OWNED.format(_name_of(status.st_uid)))
        if status.st_mode & 0o077 and (_others_may_write(status) or not close_to_others):
            mode = stat.S_IMODE(status.st_mode)
            advice = f"others may look into it (mode {mode:o}); close it with chmod 700"
            raise _refusal(path, advice)
        if status.st_mode & 0o077:
            os.fchmod(fd, 0o700)
    except BaseException:
        os.close(fd)
        raise
    return fd


def open_unchangeable(path: Path, *, make: bool = False, is_link_followed: bool = True) -> int:
    """Open a directory in which no other user can rename our entries, and return its descriptor.

    Other users may read the directory.

    Raises:
        PermissionError, OSError: As for `open_private`.
    """
    resolved = _resolved(path, make, is_link_followed)
    fd = os.open(resolved, _OPEN)
    try:
        _check(resolved, os.fstat(fd))
    except BaseException:
        os.close(fd)
        raise
    return fd


def make_private(path: Path) -> None:
    """Create the directory if it doesn't exist, and check it. Raises the same errors as `open_private`."""
    os.close(open_private(path, make=True))


def check_unchangeable(path: Path) -> None:
    """Check that no other user can rename our entries in a directory. Raises as `open_unchangeable` does."""
    os.close(open_unchangeable(path))


def explained(error: OSError) -> str:
    """Format an error as directory and reason, without the errno."""
    return f"{error.filename}: {error.strerror}"


_OWNED = "it belongs to {}, who can change what is in it; have it removed, or use another directory"


def _resolved(path: Path, make: bool, is_link_followed: bool) -> Path:
    """Return the path without symbolic links, after checking all directories above it."""
    at = Path("/")
    names = [name for name in reversed(path.absolute().parts) if name != "/"]
    links = 0
    while names:
        _check(at, os.lstat(at))
        name = names.pop()
        child = at.parent if name == ".." else at / name
        if make and not os.path.lexists(child):
            with contextlib.suppress(FileExistsError):
                os.mkdir(child, 0o700)
        status = os.lstat(child)
        if not stat.S_ISLNK(status.st_mode):
            at = child
            continue
        links += 1
        if links > _MOST_LINKS:
            raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), str(path))
        target = os.readlink(child)
        if not names and not is_link_followed:
            advice = f"it is a symbolic link; remove it, or name what it leads to: {target}"
            raise _refusal(child, advice)
        if not _is_trusted(status.st_uid):
            advice = f"it is a symbolic link of {_name_of(status.st_uid)}'s; remove it"
            raise _refusal(child, advice)
        if os.path.isabs(target):
            at = Path("/")
        names += [name for name in reversed(Path(target).parts) if name != "/"]
    return at


def _check(directory: Path, status: os.stat_result) -> None:
    """Raise PermissionError if another user can rename our entries in this directory."""
    if not stat.S_ISDIR(status.st_mode):
        raise NotADirectoryError(errno.ENOTDIR, "it is no directory; remove it", str(directory))
    if _is_volume_of_a_pod(directory):
        return
    if not _is_trusted(status.st_uid):
        raise _refusal(directory, _OWNED.format(_name_of(status.st_uid)))
    if _others_may_write(status) and not status.st_mode & stat.S_ISVTX:
        mode = stat.S_IMODE(status.st_mode)
        problem = f"others may write to it (mode {mode:o}), and so replace what is in it"
        raise _refusal(directory, f"{problem}; chmod it to 0700, or use another directory")


def _refusal(directory: Path, why: str) -> PermissionError:
    return PermissionError(errno.EPERM, why, str(directory))


def _is_trusted(uid: int) -> bool:
    """Return True if this user is us, or root."""
    return uid in (os.geteuid(), 0, _unmapped_uid())


@functools.cache
def _unmapped_uid() -> int:
    """Return the uid that root has in a user namespace that doesn't map it; -1 if all uids are mapped."""
    try:
        mapped = Path("/proc/self/uid_map").read_text().split()
        if mapped[:3] == ["0", "0", str(_ALL_UIDS)]:
            return -1
        return int(Path("/proc/sys/kernel/overflowuid").read_text())
    except (OSError, ValueError):
        return -1


def _others_may_write(status: os.stat_result) -> bool:
    of_group = status.st_mode & 0o020 and not _is_own_group(status.st_gid, os.geteuid())
    return bool(status.st_mode & 0o002 or of_group)


@functools.cache
def _is_own_group(gid: int, uid: int) -> bool:
    """Return True if this user is the group's only member.

    Many systems give each user a group of the same name.
    """
    import grp
    import pwd

    try:
        user = pwd.getpwuid(uid)
        group = grp.getgrgid(gid)
    except KeyError:
        return False
    return (user.pw_gid, user.pw_name) == (gid, group.gr_name) and {*group.gr_mem} <= {user.pw_name}


def _is_volume_of_a_pod(directory: Path) -> bool:
    """Return True for a volume of a Kubernetes pod.

    Kubernetes opens volumes to all users, but no other pod's users see them.
    """
    return "KUBERNETES_SERVICE_HOST" in os.environ and _is_mount(directory)


def _is_mount(directory: Path) -> bool:
    """Return True if a file system, or a part of one, is mounted there.

    `os.path.ismount` alone would miss a part of the file system that its parent is on. Containers get volumes
    like that where the image's files are copies on the node's disk, which also has the volumes.
    """
    if os.path.ismount(directory):
        return True
    try:
        lines = Path("/proc/self/mountinfo").read_text().splitlines()
    except OSError:
        return False
    return str(directory) in [line.split()[_MOUNT_POINT] for line in lines]


def _name_of(uid: int) -> str:
    import pwd

    try:
        return f"user {uid} ({pwd.getpwuid(uid).pw_name})"
    except KeyError:
        return f"user {uid}"
