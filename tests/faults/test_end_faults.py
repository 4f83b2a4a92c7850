"""F23, F50: how a worker ends that does not end well, and what the script's exit code says of it."""

from __future__ import annotations

import contextlib
import os
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

import launchpad as lp
from launchpad import outcome
from launchpad.outcome import Outcome
from launchpad.runtime.commands import Command, StopWorker
from tests.faults.backends import both, everywhere_by_script
from tests.helpers import scripts
from tests.waiting import until

V1, V2 = Path("/sys/fs/cgroup/memory"), Path("/sys/fs/cgroup")


@pytest.fixture
def small_cgroup() -> Iterator[Path]:
    """A memory cgroup of 128 MiB; who may not make one skips the test."""
    root = V1 if V1.is_dir() else V2
    limit = "memory.limit_in_bytes" if root == V1 else "memory.max"
    group = root / f"launchpad-test-{os.getpid()}"
    try:
        group.mkdir()
        (group / limit).write_text(str(128 << 20))
    except OSError as error:
        with contextlib.suppress(OSError):
            group.rmdir()
        pytest.skip(f"no memory cgroup can be made here: {error}")
    yield group
    group.rmdir()


EATS = """
import os
import launchpad as lp

def eat():
    food = []
    while True:
        food.append(bytearray(os.urandom(1 << 20)))

program = lp.Program("eats")
program.add_node(lp.PyNode(eat), label="worker")
lp.launch(program, "local_mp")
"""


def test_f23_a_kill_by_the_kernel_for_lack_of_memory_is_named(
    tmp_path: Path, small_cgroup: Path
) -> None:
    done = scripts.run(scripts.write(tmp_path, EATS), cgroup=small_cgroup)

    assert "worker-0 failed in run (attempt 1): killed by the kernel (SIGKILL): out of memory" in (
        done.stderr
    ), done.stderr
    assert "its peak memory was " in done.stderr
    assert "the limit of its cgroup is 128 MiB" in done.stderr
    assert done.returncode == outcome.OUT_OF_MEMORY


STUBBORN = """
import time
import launchpad as lp

class Stubborn:
    def __init__(self):
        lp.stop_event()
    def run(self):
        print("it never stops by itself", flush=True)
        lp.stop("enough")
        self.never_stops()
    def never_stops(self):
        while True:
            time.sleep(0.01)

program = lp.Program("ends")
program.add_node(lp.PyClassNode(Stubborn), label="worker")
lp.launch(program)
"""


def run_stubborn(
    tmp_path: Path, launch_type: str, notice_s: int
) -> subprocess.CompletedProcess[str]:
    flags = [f"--lp_launch_type={launch_type}", f"--lp_termination_notice_secs={notice_s}"]
    return scripts.run(scripts.write(tmp_path, STUBBORN), *flags)


@everywhere_by_script
def test_f50_a_worker_that_ignores_the_stop_is_named_with_its_stack(
    tmp_path: Path, launch_type: str
) -> None:
    done = run_stubborn(tmp_path, launch_type, notice_s=1)

    assert "worker-0 did not stop when asked; it is ended by force" in done.stdout
    assert "in never_stops" in done.stdout
    assert done.returncode == outcome.HUNG


def test_f50_a_worker_that_is_given_no_time_to_stop_has_not_hung(tmp_path: Path) -> None:
    done = run_stubborn(tmp_path, "local_mp", notice_s=0)

    assert done.returncode == 0
    assert "it never stops by itself" in done.stdout
    assert "in never_stops" not in done.stdout + done.stderr
    assert "by force" not in done.stdout


@pytest.mark.parametrize(
    ("ended", "code"),
    [
        (Outcome("w", "succeeded"), 0),
        (Outcome("w", "stopped"), 0),
        (Outcome("w", "failed", error_type="ValueError"), 1),
        (Outcome("w", "failed", error_type="ValueError", signal="SIGSEGV"), 1),
        (Outcome("w", "failed", signal="SIGSEGV"), 3),
        (Outcome("w", "failed", exit_code=7), 3),
        (Outcome("w", "failed", signal="SIGKILL", out_of_memory=True), 4),
        (Outcome("w", "failed", error_type="MemoryError", out_of_memory=True), 4),
        (Outcome("w", "stopped", hung=True), 5),
        (Outcome("w", "failed", "init", error_type="StartTimeout", hung=True), 5),
        (Outcome("w", "failed", "start", error_type="OSError"), 6),
        (Outcome("w", "lost"), 6),
    ],
)
def test_the_exit_code_says_which_kind_of_end_it_was(ended: Outcome, code: int) -> None:
    assert outcome.exit_status(ended) == code


is_over = threading.Event()


class Holds:
    """A server whose callers wait until it ends."""

    def hold(self) -> None:
        print("held", flush=True)
        is_over.wait()


def be_held(server: Holds) -> None:
    server.hold()


@both
def test_a_worker_whose_server_is_stopped_first_ends_as_stopped(
    launch_type: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = lp.Program("stopped")
    server = program.add_node(lp.CourierNode(Holds), label="server")
    program.add_node(lp.PyNode(be_held, server), label="client")
    running = lp.launch(program, launch_type)
    until(lambda: "held" in running.logs("server"))
    workers = running._runner.workers
    execute = workers.execute

    def stop_only_the_server(command: Command) -> None:
        if not isinstance(command, StopWorker) or command.worker == "server-0":
            execute(command)

    monkeypatch.setattr(workers, "execute", stop_only_the_server)
    with running:
        running.stop()
        running.wait(60)
    is_over.set()

    (client,) = (row for row in running.status() if row.worker == "client-0")
    assert client.state == "stopped"
    assert "while stopping" in client.cause
