"""F20, F45, F46: a system that refuses, and user code that does to its process what it likes."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

import launchpad as lp
from launchpad import outcome
from tests import nodes
from tests.faults.backends import processes
from tests.helpers import scripts
from tests.waiting import until

DEADLINE_S = 60.0
V1, V2 = Path("/sys/fs/cgroup/pids"), Path("/sys/fs/cgroup")

MANY = """
import resource
import launchpad as lp
{limit}
program = lp.Program("many")
with program.group("waiter"):
    for _ in range(60):
        program.add_node(lp.PyNode(lp.wait_for_stop))
lp.launch(program, "local_mp", terminal="output_to_files")
"""


@pytest.fixture
def few_processes() -> Iterator[Path]:
    """A cgroup of 30 processes and threads; who may not make one skips the test."""
    group = (V1 if V1.is_dir() else V2) / f"launchpad-test-{os.getpid()}"
    try:
        group.mkdir()
        (group / "pids.max").write_text("30")
    except OSError as error:
        with contextlib.suppress(OSError):
            group.rmdir()
        pytest.skip(f"no pids cgroup can be made here: {error}")
    yield group
    group.rmdir()


def run(tmp_path: Path, limit: str, cgroup: Path | None = None) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", MANY.format(limit=limit)]
    return scripts.run(command, cgroup=cgroup, cwd=tmp_path)


def assert_none_left_in(directory: Path) -> None:
    def is_here(process: psutil.Process) -> bool:
        with contextlib.suppress(psutil.Error):
            return process.cwd() == str(directory)
        return False

    assert [p for p in psutil.process_iter() if is_here(p)] == []


@pytest.mark.slow
def test_f20_where_no_process_can_be_had_the_limit_is_named(
    tmp_path: Path, few_processes: Path
) -> None:
    done = run(tmp_path, "", few_processes)

    assert "could not be started" in done.stderr or "no thread could be" in done.stderr, done.stderr
    assert "the limit on processes and threads (ulimit -u, or pids.max" in done.stderr
    assert done.returncode in (outcome.NOT_THERE, outcome.RAISED)
    assert_none_left_in(tmp_path)


def test_f20_sound_34_where_no_file_can_be_opened_the_limit_is_named_but_no_log(
    tmp_path: Path,
) -> None:
    done = run(tmp_path, "resource.setrlimit(resource.RLIMIT_NOFILE, (32, 32))")

    assert "failed in start (attempt 1): could not be started" in done.stderr, done.stderr
    assert "the limit on open files of one process (ulimit -n)" in done.stderr
    assert "  log: " not in done.stdout + done.stderr
    assert done.returncode == outcome.NOT_THERE
    assert_none_left_in(tmp_path)


class ForksAndChangesItsProcess:
    """Everything that a worker does not expect of its object."""

    def __init__(self, counter: nodes.Counter) -> None:
        self.counter = counter

    def run(self) -> None:
        import multiprocessing
        import signal

        self.counter.add()
        with multiprocessing.get_context("fork").Pool(2) as pool:  # as torch's DataLoader does
            assert pool.map(abs, [-1, -2, -3]) == [1, 2, 3]
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT):
            signal.signal(number, signal.SIG_IGN)
        print("counted", self.counter.add(), flush=True)
        os.chdir("/")
        with contextlib.suppress(PermissionError):
            os.setsid()
        os.closerange(0, 3)
        lp.stop_event().wait()


@processes
def test_f45_f46_a_worker_may_fork_and_change_its_process_and_is_stopped(launch_type: str) -> None:
    program = lp.Program("changes")
    counter = program.add_node(lp.CourierNode(nodes.Counter), label="counter")
    program.add_node(lp.PyClassNode(ForksAndChangesItsProcess, counter), label="changes")

    with lp.launch(program, launch_type) as running:
        until(lambda: running.failure() or "counted 2" in running.logs("changes"), DEADLINE_S)

    assert {status.state for status in running.status()} == {"stopped"}
