"""A server that forks the subreapers of several forkservers, as on a node."""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Iterable, Iterator
from pathlib import Path

import psutil
import pytest

from launchpad.launch.backends.processes import forkserver_handle
from launchpad.launch.backends.processes.forkserver_handle import ForkserverHandle
from launchpad.launch.backends.processes.subreaper_server_handle import SubreaperServer
from tests.waiting import runs, until


@pytest.fixture
def server() -> Iterator[SubreaperServer]:
    made = SubreaperServer()
    yield made
    made.close()
    until(lambda: not servers())


def named(name: str, processes: Iterable[psutil.Process]) -> list[psutil.Process]:
    """Return those of the processes that have this name and run."""
    running = []
    for process in processes:
        with contextlib.suppress(psutil.NoSuchProcess):
            if process.name() == name and runs(process):
                running.append(process)
    return running


def servers() -> list[psutil.Process]:
    """Return the servers of this process."""
    return named("subreapers", psutil.Process().children())


def forkservers() -> list[psutil.Process]:
    """Return the forkservers below the servers of this process."""
    return named("forkserver", psutil.Process().children(recursive=True))


def start(server: SubreaperServer, *inherited: int) -> ForkserverHandle:
    return forkserver_handle.start(None, inherited, server, ["launchpad.nodes.courier"])


def test_one_server_forks_all_forkservers_and_each_ends_by_itself(server: SubreaperServer) -> None:
    first, second = start(server), start(server)
    until(lambda: len(forkservers()) == 2)

    first.end()

    assert first.subreaper.returncode is not None
    assert len(servers()) == 1
    assert len(forkservers()) == 1
    assert second.subreaper.returncode is None
    second.end()


def test_what_a_worker_inherits_has_the_number_that_it_has_here(
    server: SubreaperServer, tmp_path: Path
) -> None:
    (tmp_path / "claim").touch()
    low = os.open(tmp_path / "claim", os.O_RDONLY)
    high = os.dup2(low, 200)

    handle = start(server, low, high)
    until(forkservers)
    (forkserver,) = forkservers()

    fds = Path(f"/proc/{forkserver.pid}/fd")
    assert [os.readlink(fds / str(fd)) for fd in (low, high)] == [str(tmp_path / "claim")] * 2
    assert os.readlink(fds / "0") == os.devnull
    handle.end()
    os.close(low)
    os.close(high)


def test_when_the_server_is_killed_all_below_it_ends_and_the_next_start_has_another(
    server: SubreaperServer,
) -> None:
    handles = [start(server), start(server)]
    until(lambda: len(forkservers()) == 2)
    (killed,) = servers()
    below = forkservers()

    killed.kill()

    assert [handle.subreaper.wait() for handle in handles] == [-signal.SIGKILL] * 2
    until(lambda: not any(map(runs, below)))
    handles.append(start(server))
    until(forkservers)
    for handle in handles:
        handle.end()
