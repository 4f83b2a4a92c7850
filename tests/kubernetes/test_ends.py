"""However a launcher on a real cluster ends, nothing of its run remains there: at once, or after a `stop`."""

from __future__ import annotations

import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from launchpad.launch.backends.kubernetes.api.client import Cluster
from tests.kubernetes.leak_check import end_all, what_is_left

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("pods_run_this")]

ROOT = Path(__file__).parents[2]
DEADLINE_S = 90.0

SCRIPT = """
import signal, sys
import launchpad as lp
from tests.helpers import pod_nodes

program = lp.Program("ends")
with program.group("first"):
    program.add_node(lp.PyNode(pod_nodes.waits))
with program.group("second"):
    program.add_node(lp.PyNode(getattr(pod_nodes, sys.argv[1])))
running = lp.launch(program)
while not all("waiting" in running.logs(label) for label in ("first", sys.argv[2])):
    signal.sigtimedwait([], 0.01)
sys.stdout.write(f"both run {running.run_id}\\n")  # in one piece: workers' lines come between
sys.stdout.flush()
"""
"""Launches two workers; it says so when they run."""

Start = Callable[..., "subprocess.Popen[str]"]


@pytest.fixture
def places(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """No other run of this user is seen from here. Sockets need short paths."""
    with tempfile.TemporaryDirectory(prefix="lp-", dir="/tmp") as runtime:
        monkeypatch.setenv("LAUNCHPAD_RUNTIME_DIR", runtime)
        monkeypatch.setenv("LAUNCHPAD_LOGGING_DIR", str(tmp_path / "logs"))
        monkeypatch.setenv("PYTHONPATH", str(ROOT))
        monkeypatch.delenv("RAY_ADDRESS", raising=False)
        yield


@pytest.fixture
def start(tmp_path: Path, places: None, api: Cluster) -> Iterator[Start]:
    """Starts a script; what it prints can be read. Ends what a test leaves that has failed."""
    started: list[subprocess.Popen[str]] = []

    def start(
        last: str, second: str = "waits", waits_for: str = "second", notice_s: int = 3
    ) -> subprocess.Popen[str]:
        script = tmp_path / "script" / "ends.py"
        script.parent.mkdir()
        script.write_text(SCRIPT + last)
        flags = ["--lp_launch_type=kubernetes", f"--lp_termination_notice_secs={notice_s}"]
        process = subprocess.Popen(
            [sys.executable, str(script), second, waits_for, *flags],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        started.append(process)
        return process

    yield start
    for process in started:
        process.kill()
        process.wait()
        if process.stdout is not None:
            process.stdout.close()
    end_all(api)


def run_id_of(process: subprocess.Popen[str]) -> str:
    """Waits until both of its workers run."""
    assert process.stdout is not None
    seen = ""
    for line in process.stdout:
        seen += line
        if line.startswith("both run"):
            return line.split()[-1]
    raise AssertionError(f"they never ran:\n{seen}")


def command(*arguments: str) -> str:
    """What `python -m launchpad` prints, as from another terminal."""
    done = subprocess.run(
        [sys.executable, "-m", "launchpad", *arguments],
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
        cwd="/",
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stderr == ""
    return done.stdout


def killed(process: subprocess.Popen[str]) -> str:
    """The id of its run, of which there is no launcher any more."""
    run_id = run_id_of(process)
    process.kill()
    process.wait(DEADLINE_S)
    return run_id


def test_a_stop_by_the_script_leaves_nothing(start: Start, api: Cluster) -> None:
    process = start("running.stop()\nprint('stopped', flush=True)")
    output, _ = process.communicate(timeout=DEADLINE_S)

    assert process.returncode == 0, output
    assert "stopped" in output
    assert what_is_left(api) == []


def test_a_worker_that_fails_leaves_nothing(start: Start, api: Cluster) -> None:
    process = start("", second="raises", waits_for="first")
    output, _ = process.communicate(timeout=DEADLINE_S)

    assert process.returncode == 1, output
    assert "ValueError: boom" in output
    assert what_is_left(api) == []


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_to_the_script_leaves_nothing(
    start: Start, api: Cluster, number: signal.Signals
) -> None:
    process = start("running.wait()")
    run_id_of(process)

    process.send_signal(number)
    output, _ = process.communicate(timeout=DEADLINE_S)

    assert process.returncode == 128 + number, output
    assert what_is_left(api) == []


def test_f48_a_second_ctrl_c_leaves_nothing(start: Start, api: Cluster) -> None:
    process = start("running.wait()", second="never_stops", notice_s=1000)
    run_id_of(process)
    assert process.stdout is not None

    process.send_signal(signal.SIGINT)
    while "stopping" not in process.stdout.readline():
        assert process.poll() is None
    process.send_signal(signal.SIGINT)
    output, _ = process.communicate(timeout=DEADLINE_S)

    assert process.returncode == 130, output
    assert what_is_left(api) == []


def test_f51_a_run_whose_launcher_was_killed_goes_on_until_it_is_stopped_and_leaves_nothing(
    start: Start, api: Cluster
) -> None:
    process = start("running.wait()")
    run_id = killed(process)

    header, row = command("ps").splitlines()
    assert header.split()[0] == "RUN"
    assert row.split()[:4] == [run_id, "ends", str(process.pid), "kubernetes"]
    assert row.endswith("2 running")
    workers = [line.split()[:3] for line in command("ps", run_id).splitlines()[1:]]
    assert workers == [["first-0", "running", "1"], ["second-0", "running", "1"]]
    assert command("logs", run_id, "second") == "waiting\n"
    assert len(what_is_left(api)) >= 6  # the root, the Service, two Jobs with a pod each

    stopped = command("stop", run_id)

    assert "stopped after" in stopped
    assert what_is_left(api) == []
    assert "no program of yours runs" in command("ps")


def test_a_worker_that_never_stops_is_stopped_by_force_when_its_launcher_was_killed(
    start: Start, api: Cluster
) -> None:
    run_id = killed(start("running.wait()", second="never_stops", notice_s=1000))

    command("stop", "--now", run_id)

    assert what_is_left(api) == []


def test_a_run_whose_launcher_still_runs_is_listed_once_and_stopped_by_it(
    start: Start, api: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    process = start("running.wait()")
    run_id = run_id_of(process)

    assert [line.split()[0] for line in command("ps").splitlines()] == ["RUN", run_id]
    monkeypatch.setenv("LAUNCHPAD_RUNTIME_DIR", str(tmp_path))  # found by the cluster alone
    assert [line.split()[0] for line in command("ps").splitlines()] == ["RUN", run_id]
    command("stop", run_id)
    output, _ = process.communicate(timeout=DEADLINE_S)

    assert process.returncode == 0, output
    assert what_is_left(api) == []
