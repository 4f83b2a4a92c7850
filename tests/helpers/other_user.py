"""Another user of this host, who tries what the tests of private directories say is of no use."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import cloudpickle
import pytest

UID = 65534

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can be another user, too")


_PROGRAM = f"""
import encodings.idna, os, pickle, sys  # what is imported later he may not be able to read
act, args = pickle.load(sys.stdin.buffer)
os.setgroups([])
os.setresgid({UID}, {UID}, {UID})
os.setresuid({UID}, {UID}, {UID})
os.umask(0)
act(*args)
"""


def does(act: Callable[..., object], *args: object) -> None:
    """Let another user call `act`, in a new process, since gRPC must not be forked."""
    done = subprocess.run(
        [sys.executable, "-c", _PROGRAM],
        input=cloudpickle.dumps((act, args)),
        capture_output=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, f"he could not do it: {done.stderr.decode()}"


def cannot(act: Callable[..., object], *args: object) -> None:
    """Let another user call `act`, and assert that it raises PermissionError."""

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
