"""nothing_left_over finds each thing that a test may leave."""

from __future__ import annotations

import mmap
import os
import shutil
import socket
import subprocess
import tempfile
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from launchpad.launch.plan import LaunchPlan
from launchpad.launch.rundir import record
from launchpad.launch.rundir.directory import RunDirectory
from launchpad.testing import nothing_left_over

Undo = Callable[[], Any]


def leave_a_process() -> Undo:
    process = subprocess.Popen(["sleep", "1000"])
    return lambda: (process.kill(), process.wait())


def leave_a_thread() -> Undo:
    stop = threading.Event()
    thread = threading.Thread(target=stop.wait, name="left behind")
    thread.start()
    return lambda: (stop.set(), thread.join())


def leave_a_socket() -> Undo:
    return socket.socket().close


def leave_a_mapping() -> Undo:
    fd = os.memfd_create("forgotten")
    os.truncate(fd, 4096)
    mapping = mmap.mmap(fd, 4096)
    os.close(fd)
    return mapping.close


def leave_a_run() -> Undo:
    run = RunDirectory.create("left", ["a"])
    run.make_runtime()
    record.write(run, LaunchPlan("left", "test_mp", ()))
    os.close(run._lock)
    run._lock = -1
    return run.remove


@pytest.mark.parametrize(
    ("leave", "what"),
    [
        (leave_a_process, "process .* sleep"),
        (leave_a_thread, "thread left behind"),
        (leave_a_socket, "descriptor .* socket:"),
        (leave_a_mapping, "mapping of /memfd:forgotten"),
        (leave_a_run, "run directory /tmp/"),
    ],
)
def test_what_is_left_is_named(
    leave: Callable[[], Undo], what: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    undo: Undo = lambda: None  # noqa: E731
    folder = tempfile.mkdtemp(dir="/tmp")  # tmp_path is too long for sockets
    monkeypatch.setenv("LAUNCHPAD_RUNTIME_DIR", folder)
    try:
        with pytest.raises(AssertionError, match=what), nothing_left_over(within_s=0.05):
            undo = leave()
    finally:
        undo()
        shutil.rmtree(folder)


def test_a_file_in_shared_memory_that_nothing_here_has_open_is_not_blamed_on_the_block() -> None:
    """Any program of the same user may have made it meanwhile."""
    path = Path(f"/dev/shm/launchpad-test-{os.getpid()}")
    with nothing_left_over(within_s=0.05):
        path.write_bytes(bytes(4096))

    path.unlink()
