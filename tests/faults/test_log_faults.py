"""F14, F37, F38, F46, F53: what becomes of the workers' output, whatever happens to it."""

from __future__ import annotations

import os
import pty
import re
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

import launchpad as lp
from tests.faults.backends import everywhere_by_script
from tests.helpers import printing_nodes, scripts

DEADLINE_S = 60.0


@pytest.fixture(autouse=True)
def logs_are_here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LAUNCHPAD_LOGGING_DIR", str(tmp_path / "logs"))


def program_of(node: lp.PyNode) -> lp.Program:
    program = lp.Program("logs")
    program.add_node(node, label="printer")
    return program


# F14: a slow constructor.


@pytest.mark.slow
@everywhere_by_script
def test_f14_a_slow_constructor_is_named_while_clients_wait_for_it(
    launch_type: str, capfd: pytest.CaptureFixture[str]
) -> None:
    program = lp.Program("slow")
    slow = program.add_node(lp.CourierNode(printing_nodes.SlowToBuild, 4.0), label="slow")
    program.add_node(lp.PyNode(printing_nodes.calls, slow), label="caller")

    with lp.launch(program, launch_type) as running:
        running.wait(DEADLINE_S)

    shown = capfd.readouterr().out
    assert re.search(
        r"launchpad \| [01] of 2 workers (is|are) ready after \d+ s; still starting: slow-0", shown
    )
    assert re.search(r"caller-0 +\| the answer is 7", shown)


# F38: the disk is full.


def test_f38_a_worker_runs_on_when_its_log_may_not_grow_and_the_user_is_told_once(
    capfd: pytest.CaptureFixture[str],
) -> None:
    with lp.launch(
        program_of(lp.PyNode(printing_nodes.with_little_room, 4096)), "local_mp"
    ) as running:
        running.wait(DEADLINE_S)

    shown = capfd.readouterr().out
    assert running.status()[0].state in ("succeeded", "stopped")
    assert shown.count("cannot grow (File too large)") == 1
    assert "launchpad | the logs in" in shown


@everywhere_by_script
def test_f38_a_program_runs_on_when_the_disk_of_its_logs_is_full(
    launch_type: str,
    small_disk: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("LAUNCHPAD_LOGGING_DIR", str(small_disk))
    program = program_of(lp.PyNode(printing_nodes.until_it_is_full, str(tmp_path)))
    with program.group("printer"):
        program.add_node(lp.PyNode(printing_nodes.until_it_is_full, str(tmp_path)))

    with lp.launch(program, launch_type) as running:
        running.wait(DEADLINE_S)

    assert {status.state for status in running.status()} == {"succeeded"}
    assert (tmp_path / "came-so-far").exists()
    assert capfd.readouterr().out.count("cannot grow (No space left on device)") == 1


# F46: user code closes what it prints to.


def test_f46_a_worker_that_closes_its_descriptors_and_moves_away_is_still_logged() -> None:
    running = lp.testing.run(
        program_of(lp.PyNode(printing_nodes.closes_its_descriptors)), DEADLINE_S, "test_mp"
    )

    assert running.logs("printer") == "before\nafter\nan error\n"


def test_f46_the_traceback_of_a_worker_that_has_closed_its_descriptors_is_in_its_log() -> None:
    with pytest.raises(lp.ProgramFailed) as caught:
        lp.testing.run(
            program_of(lp.PyNode(printing_nodes.closes_them_and_fails)), DEADLINE_S, "test_mp"
        )

    assert "ValueError: seen all the same" in Path(caught.value.log_path).read_text()


# F37: many lines.


@pytest.mark.slow
@everywhere_by_script
def test_f37_of_ten_thousand_lines_a_second_from_each_worker_none_is_lost(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, launch_type: str
) -> None:
    monkeypatch.setenv("LAUNCHPAD_LOG_MAX_MB", "0.5")
    monkeypatch.setenv("LAUNCHPAD_LOG_FILES", "1000")
    workers, rate, seconds = 8, 10_000, 2
    program = lp.Program("flood")
    with program.group("printer"):
        for _ in range(workers):
            program.add_node(lp.PyNode(printing_nodes.flood, rate, seconds))

    with lp.launch(program, launch_type) as running:
        running.wait(100)

    expected = [f"line {i} of" for i in range(rate * seconds)]
    for i in range(workers):
        lines = running.logs(f"printer-{i}").splitlines()
        assert [" ".join(line.split()[:3]) for line in lines] == expected
    shown = re.findall(r"^printer-(\d) \| line (\d+) of", capfd.readouterr().out, flags=re.M)
    for i in range(workers):
        assert [int(n) for worker, n in shown if int(worker) == i] == list(range(rate * seconds))


# F53: the terminal goes away.

SCRIPT = """
import time
import launchpad as lp

def talk(go_on):
    while True:
        print("talking")
        time.sleep(0.001)

program = lp.Program("talk")
program.add_node(lp.PyNode(talk, True), label="talker")
lp.launch(program, "{launch_type}")
"""


def start(launch_type: str, stdout: int) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-c", SCRIPT.format(launch_type=launch_type)],
        stdout=stdout,
        stderr=subprocess.DEVNULL,
        env=scripts.environment(),
        start_new_session=True,
    )


def read_until_it_talks(fd: int) -> None:
    seen = b""
    while not re.search(rb"talker-0 .*talking", seen):
        seen += os.read(fd, 4096)


@pytest.mark.slow
@pytest.mark.parametrize("gone", ["pipe", "terminal"])
def test_f53_a_launcher_whose_output_is_not_read_any_more_runs_on_and_never_spins(
    gone: str,
) -> None:
    ours, theirs = pty.openpty() if gone == "terminal" else os.pipe()
    process = start("local_mp", theirs)
    os.close(theirs)
    try:
        read_until_it_talks(ours)
        os.close(ours)
        launcher = psutil.Process(process.pid)
        launcher.cpu_percent()
        time.sleep(1.0)  # what is measured: the share of this second that it computes

        assert launcher.cpu_percent() < 50
        assert process.poll() is None
    finally:
        process.kill()
        process.wait(DEADLINE_S)
