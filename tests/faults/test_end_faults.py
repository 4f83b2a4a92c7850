"""F23, F24, F50: how a worker ends that does not end well, and what the script's exit code says of it."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

import launchpad as lp
from launchpad import outcome
from launchpad.outcome import Outcome
from tests.faults.backends import both_by_script, everywhere_by_script, on
from tests.helpers import scripts

DEADLINE_S = 60.0
V1, V2 = Path("/sys/fs/cgroup/memory"), Path("/sys/fs/cgroup")

PREAMBLE = """
import ctypes, os, signal, sys, threading, time
import launchpad as lp
from tests import nodes

def run(node, label="worker"):
    program = lp.Program("ends")
    program.add_node(node, label=label)
    return lp.launch(program)

"""


def run(
    tmp_path: Path,
    body: str,
    launch_type: str = "local_mp",
    *flags: str,
    cgroup: Path | None = None,
) -> subprocess.CompletedProcess[str]:
    """Runs the body as a script; in that memory cgroup, if there is one."""
    command = scripts.write(tmp_path, PREAMBLE + body)
    return scripts.run(command, f"--lp_launch_type={launch_type}", *flags, cgroup=cgroup)


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
def eat():
    food = []
    while True:
        food.append(bytearray(os.urandom(1 << 20)))
"""


def test_f23_a_worker_that_the_kernel_kills_for_lack_of_memory_is_reported_so(
    tmp_path: Path, small_cgroup: Path
) -> None:
    done = run(tmp_path, EATS + "run(lp.PyNode(eat))", cgroup=small_cgroup)

    assert "worker-0 failed in run (attempt 1): killed by the kernel (SIGKILL): out of memory" in (
        done.stderr
    ), done.stderr
    assert "its peak memory was " in done.stderr
    assert "the limit of its cgroup is 128 MiB" in done.stderr
    assert done.returncode == outcome.OUT_OF_MEMORY


@both_by_script
def test_f23_a_memory_error_is_told_with_the_peak_memory(tmp_path: Path, launch_type: str) -> None:
    body = """
def eat():
    import resource
    if "mp" in sys.argv[1]:
        resource.setrlimit(resource.RLIMIT_AS, (1 << 31, 1 << 31))
        bytearray(1 << 40)
    raise MemoryError
run(lp.PyNode(eat))
"""
    done = run(tmp_path, body, launch_type)

    assert "worker-0 failed in run (attempt 1): MemoryError" in done.stderr
    assert "the peak memory of its process was " in done.stderr
    assert done.returncode == outcome.OUT_OF_MEMORY


def test_f22_a_kill_by_another_process_is_told_from_one_for_lack_of_memory(tmp_path: Path) -> None:
    done = run(tmp_path, "run(lp.PyNode(os.kill, 0, 0))".replace("0, 0", "*(0, 9)"), "local_mp")

    assert "killed by SIGKILL, not by the launcher" in done.stderr
    assert "the kernel has killed no process for lack of memory" in done.stderr
    assert done.returncode == outcome.CRASHED


def test_f24_a_segfault_is_named_and_the_report_shows_its_stack(tmp_path: Path) -> None:
    body = """
def crash():
    ctypes.string_at(0)
run(lp.PyNode(crash))
"""
    done = run(tmp_path, body)

    assert "killed by SIGSEGV, not by the launcher" in done.stderr
    assert "in crash" in done.stderr
    assert done.returncode == outcome.CRASHED


@pytest.mark.parametrize("code", [0, 3])
def test_f24_an_early_exit_without_a_word_is_named(tmp_path: Path, code: int) -> None:
    done = run(tmp_path, f"run(lp.PyNode(os._exit, {code}))")

    assert f"exited with code {code} without saying why" in done.stderr
    assert done.returncode == outcome.CRASHED


@both_by_script
def test_f24_sys_exit_0_is_a_success_and_another_code_a_failure(
    tmp_path: Path, launch_type: str
) -> None:
    assert run(tmp_path, "run(lp.PyNode(sys.exit, 0))", launch_type).returncode == 0
    failed = run(tmp_path, "run(lp.PyNode(sys.exit, 3))", launch_type)
    assert "SystemExit: 3" in failed.stderr
    assert failed.returncode == outcome.RAISED


STUBBORN = """
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
run(lp.PyClassNode(Stubborn))
"""


@everywhere_by_script
def test_f50_a_worker_that_ignores_the_stop_is_named_with_its_stack_and_the_exit_code_says_so(
    tmp_path: Path, launch_type: str
) -> None:
    done = run(tmp_path, STUBBORN, launch_type, "--lp_termination_notice_secs=1")

    assert "worker-0 did not stop when asked; it is ended by force" in done.stdout
    assert "in never_stops" in done.stdout
    assert done.returncode == outcome.HUNG


@on("local_mt", "local_mp", "ray")  # a pod writes its stacks all the same
def test_f50_a_worker_that_is_given_no_time_to_stop_has_not_hung(
    tmp_path: Path, launch_type: str
) -> None:
    done = run(tmp_path, STUBBORN, launch_type, "--lp_termination_notice_secs=0")

    assert done.returncode == 0
    assert "it never stops by itself" in done.stdout
    assert "in never_stops" not in done.stdout + done.stderr
    assert "by force" not in done.stdout


def test_f15_a_constructor_that_hangs_is_reported_with_its_stack(tmp_path: Path) -> None:
    body = """
class Hangs:
    def __init__(self):
        self.never_returns()
    def never_returns(self):
        time.sleep(1000)
    def run(self): ...
program = lp.Program("ends")
with program.group("worker", restart=lp.RestartPolicy(max_restarts=0, start_timeout_s=3)):
    program.add_node(lp.PyClassNode(Hangs))
lp.launch(program)
"""
    done = run(tmp_path, body)

    assert "worker-0 failed in init (attempt 1): was not ready within" in done.stderr
    assert "in never_returns" in done.stderr
    assert done.returncode == outcome.HUNG


# The table.


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


def test_a_program_that_was_launched_in_code_tells_its_exit_code() -> None:
    program = lp.Program("ends")
    program.add_node(lp.PyNode(os.kill, 0, signal.SIGKILL), label="worker")
    running = lp.launch(program, "test_mp")

    with pytest.raises(lp.ProgramFailed):
        running.wait(DEADLINE_S)

    assert running.exit_status() == outcome.CRASHED
