"""No process outlives the launcher or the forkserver, whichever is killed, wherever it has moved to."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import psutil
import pytest

import launchpad as lp
from launchpad.courier.server import poller
from launchpad.launch.backends.processes import os_process
from tests.helpers.programs import single
from tests.waiting import runs, until

ROOT = Path(__file__).resolve().parents[2]
DEADLINE_S = 20.0

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="orphans are adopted on Linux only")

PREAMBLE = """
import os, signal, subprocess, sys, threading, time
import launchpad as lp

def say(what):
    with open("heard", "a") as file:
        file.write(what + "\\n")
"""

SETSID = 'subprocess.Popen(["sleep", "1000"], start_new_session=True)'
ALL_WAYS = f"""{SETSID}
subprocess.Popen(["sleep", "1000"])
subprocess.Popen(["sleep", "1000"], start_new_session=True, env={{}})
subprocess.run(["sh", "-c", "setsid sleep 1000 >/dev/null 2>&1 &"])
inner = lp.Program("inner")
inner.add_node(lp.PyNode(time.sleep, 1000), label="inner")
lp.launch(inner, "test_mp")
"""


@dataclass
class Script:
    """A launcher that is a process of its own, with all below it."""

    launcher: psutil.Process
    runtime: Path
    directory: Path

    @property
    def subreaper(self) -> psutil.Process:
        (subreaper,) = self.launcher.children()
        return subreaper

    @property
    def forkserver(self) -> psutil.Process:
        (forkserver,) = self.subreaper.children()
        return forkserver

    def descendants(self) -> list[psutil.Process]:
        """Also those that have got away: they are known by the directory they were started in."""
        return [p for p in psutil.process_iter() if p != self.launcher and self._is_here(p)]

    def _is_here(self, process: psutil.Process) -> bool:
        with contextlib.suppress(psutil.Error):
            lives = process.status() != psutil.STATUS_ZOMBIE
            return lives and process.cwd() == str(self.directory)
        return False


StartWorker = Callable[..., Script]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[StartWorker]:
    """Launches three workers, the first of which runs the given code, and waits until all are there."""
    started: list[tuple[subprocess.Popen[bytes], Script]] = []
    base = tempfile.mkdtemp(dir="/tmp")  # short, for sockets; and nobody else's runs are in it
    environment = {**os.environ, "TMPDIR": base, "LAUNCHPAD_RUNTIME_DIR": base}

    def launch(code: str, of_launcher: str = "") -> Script:
        body = "def first():\n" + "".join(f"    {line}\n" for line in code.splitlines())
        body += """
    say("first")
    lp.wait_for_stop()

def other():
    say("other")
    lp.wait_for_stop()

program = lp.Program("kept")
for label, run in (("first", first), ("second", other), ("third", other)):
    program.add_node(lp.PyNode(run), label=label)
running = lp.launch(program, "local_mp", terminal="output_to_files")
print(running._run.runtime, flush=True)
"""
        body += of_launcher
        noticed = tmp_path / "heard"
        noticed.touch()
        process = subprocess.Popen(
            [sys.executable, "-c", PREAMBLE + body],
            cwd=tmp_path,
            env={**environment, "PYTHONPATH": str(ROOT), "LAUNCHPAD_LOGGING_DIR": str(tmp_path)},
            stdout=subprocess.PIPE,
        )
        assert process.stdout is not None
        runtime = Path(process.stdout.readline().decode().strip())
        script = Script(psutil.Process(process.pid), runtime, tmp_path)
        started.append((process, script))
        until(lambda: noticed.read_text().count("\n") == 3)
        return script

    yield launch
    for process, script in started:
        for left in script.descendants():
            left.kill()
        process.kill()
        process.communicate()
    shutil.rmtree(base)


def assert_nothing_is_left(script: Script) -> None:
    until(lambda: not script.descendants())
    until(lambda: list(script.runtime.parent.iterdir()) == [])


def test_when_launcher_and_forkserver_are_killed_together_nothing_is_left(
    start: StartWorker,
) -> None:
    script = start(ALL_WAYS)
    until(lambda: len(script.descendants()) >= 11)  # 5 of the program, 4 that sleep, 2 of the inner
    assert script.runtime.exists()

    forkserver, launcher = script.forkserver, script.launcher
    forkserver.kill()
    launcher.kill()

    assert_nothing_is_left(script)


def test_when_the_forkserver_is_killed_nothing_is_left_and_the_launcher_ends(
    start: StartWorker,
) -> None:
    script = start(ALL_WAYS)

    script.forkserver.kill()

    until(lambda: not script.descendants())
    until(lambda: not runs(script.launcher))
    assert_nothing_is_left(script)


def test_when_the_launcher_is_killed_nothing_is_left(start: StartWorker) -> None:
    script = start(ALL_WAYS)

    script.launcher.kill()

    assert_nothing_is_left(script)


@pytest.mark.timing
@pytest.mark.parametrize("forks", ["", "if os.fork() == 0: time.sleep(1000)\n"])
def test_f51_when_the_launcher_is_killed_nothing_is_left_250_ms_later(
    start: StartWorker, forks: str
) -> None:
    script = start(SETSID, forks)
    its_own = script.launcher.cmdline()  # of its forked child, too
    below = [p for p in script.launcher.children(recursive=True) if p.cmdline() != its_own]
    assert len(below) == 6  # the subreaper, the forkserver, three workers and what one has started
    assert list(script.runtime.iterdir())

    script.launcher.kill()

    until(lambda: not any(map(runs, below)) and not script.runtime.exists(), within_s=0.25)


def test_when_the_launcher_is_killed_and_the_forkserver_stopped_nothing_is_left(
    start: StartWorker,
) -> None:
    script = start(SETSID)

    script.forkserver.suspend()
    script.launcher.kill()

    assert_nothing_is_left(script)


def test_when_the_launcher_and_the_subreaper_are_killed_the_forkserver_ends_all(
    start: StartWorker,
) -> None:
    script = start(SETSID)

    script.subreaper.kill()
    script.launcher.kill()

    assert_nothing_is_left(script)


def test_when_the_subreaper_alone_is_killed_the_program_goes_on_and_ends_well(
    start: StartWorker,
) -> None:
    script = start(SETSID)
    forkserver = script.forkserver
    workers = forkserver.children()

    script.subreaper.kill()
    script.launcher.send_signal(signal.SIGINT)

    assert len(workers) == 3
    assert_nothing_is_left(script)


def test_when_all_three_are_killed_workers_end_themselves_and_what_they_started(
    start: StartWorker,
) -> None:
    script = start(SETSID)

    for process in (script.subreaper, script.forkserver, script.launcher):
        process.suspend()
    for process in (script.subreaper, script.forkserver, script.launcher):
        process.kill()

    until(lambda: not script.descendants())


def test_a_subreaper_whose_launcher_is_dead_before_it_begins_leaves_no_directory(
    tmp_path: Path,
) -> None:
    runtime = tmp_path / "runtime"
    runtime.mkdir()
    (runtime / "lock").touch()
    nobody = subprocess.Popen(["true"])
    nobody.wait()

    entry = "from launchpad.launch.backends.processes.subreaper import main"
    with tempfile.TemporaryFile() as specs:
        specs.write(os_process.header_with(str(runtime)))
        specs.flush()
        subprocess.run(
            [sys.executable, "-c", f"{entry}; main(0, {specs.fileno()}, {nobody.pid})"],
            check=True,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            pass_fds=[specs.fileno()],
            timeout=DEADLINE_S,
        )

    assert not runtime.exists()


def test_when_the_forkserver_is_killed_the_report_begins_with_that(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(poller, "_POLL_S", 0.001)  # how often servers look for their sockets
    program = single(lp.PyNode(lp.wait_for_stop))

    running = lp.launch(program, "test_mp")
    with contextlib.suppress(lp.ProgramFailed), running:
        until(lambda: [row.state for row in running.status()] == ["running"])
        for process in psutil.Process().children(recursive=True):
            with contextlib.suppress(psutil.NoSuchProcess):  # a worker ends with its forkserver
                if process.name() == "forkserver":
                    process.kill()
        running.wait(60, raise_error=False)
        failure = str(running.failure())

    assert "the forkserver of all workers was killed" in failure
    assert caplog.messages == []
