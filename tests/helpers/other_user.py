"""Another user of this host, who tries what the tests of private directories say is of no use."""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

UID = 65534

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can be another user, too")


def does(act: Callable[..., object], *args: object) -> None:
    """Another user does this, in a process of his own. AssertionError: it fails; stderr has the reason."""
    pid = os.fork()
    if pid == 0:
        try:
            os.setgroups([])
            os.setresgid(UID, UID, UID)
            os.setresuid(UID, UID, UID)
            os.umask(0)
            act(*args)
        except BaseException:
            traceback.print_exc()
            os._exit(1)
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0, "he could not do it"


def cannot(act: Callable[..., object], *args: object) -> None:
    """The same for what he must not be able to do: it raises PermissionError."""

    def try_it() -> None:
        with pytest.raises(PermissionError):
            act(*args)

    does(try_it)


@contextlib.contextmanager
def shared_directory() -> Iterator[Path]:
    """A directory like /tmp: all may write to it, and rename only what is theirs."""
    path = Path(tempfile.mkdtemp(prefix="lp-shared-", dir="/tmp"))
    path.chmod(0o1777)
    yield path
    shutil.rmtree(path)
