"""However a launcher on a real cluster ends, nothing of its run remains there: at once, or after a `stop`."""

from __future__ import annotations

import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import launchpad as lp
from launchpad.launch.backends.kubernetes import termination
from launchpad.launch.backends.kubernetes.api.client import Cluster
from tests.helpers import pod_nodes, scripts
from tests.helpers.programs import single
from tests.waiting import until

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("pods_run_this")]

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
running.wait()
"""
"""Launches two workers, says so when they run, and waits for them."""

KINDS = ("ConfigMap", "Secret", "Service", "Job", "Pod", "ServiceAccount", "Role", "RoleBinding")


def what_is_left(api: Cluster) -> list[str]:
    """The objects of all runs of the script, in the namespace of these tests."""
    found = []
    for kind in KINDS:
        for each in api.list(kind, "launchpad/run")[0]:
            # Tests of other files use the namespace, too: of a run that ended while it was starting,
            # the cluster may make a pod for a Job that is gone, and takes seconds to remove it.
            if each["metadata"]["labels"]["launchpad/run"].startswith("ends-"):
                found.append(f"{kind} {each['metadata']['name']}")
    return found


def end_all(api: Cluster) -> None:
    """Of a test that has failed, so that the next one finds nothing."""
    for root in api.list("ConfigMap", "launchpad/role=root")[0]:
        name = root["metadata"]["name"]
        pods = api.list("Pod", f"launchpad/run={name}")[0]
        termination.remove(api, name, {pod["metadata"]["name"] for pod in pods})


Start = Callable[..., "subprocess.Popen[str]"]


@pytest.fixture
def places(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """No other run of this user is seen from here. Sockets need short paths."""
    with tempfile.TemporaryDirectory(prefix="lp-", dir="/tmp") as runtime:
        monkeypatch.setenv("LAUNCHPAD_RUNTIME_DIR", runtime)
        monkeypatch.setenv("LAUNCHPAD_LOGGING_DIR", str(tmp_path / "logs"))
        monkeypatch.delenv("RAY_ADDRESS", raising=False)
        yield


@pytest.fixture
def start(tmp_path: Path, places: None, api: Cluster) -> Iterator[Start]:
    """Starts the script; what it prints can be read. Ends what a test leaves that has failed."""
    with scripts.started() as begin:

        def start(
            second: str = "waits", waits_for: str = "second", notice_s: int = 3
        ) -> subprocess.Popen[str]:
            flags = "--lp_launch_type=kubernetes", f"--lp_termination_notice_secs={notice_s}"
            return begin(scripts.write(tmp_path, SCRIPT), second, waits_for, *flags)

        yield start
    end_all(api)


def run_id_of(process: subprocess.Popen[str]) -> str:
    """Waits until both of its workers run."""
    return scripts.read_until(process, "both run").split()[-1]


def command(*arguments: str) -> str:
    """What `python -m launchpad` prints, as from another terminal."""
    done = scripts.run([sys.executable, "-m", "launchpad", *arguments], cwd=Path("/"))
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stderr == ""
    return done.stdout


def killed(process: subprocess.Popen[str]) -> str:
    """The id of its run, of which there is no launcher any more."""
    run_id = run_id_of(process)
    process.kill()
    process.wait(DEADLINE_S)
    return run_id


def test_a_worker_that_fails_leaves_nothing(start: Start, api: Cluster) -> None:
    process = start("raises", waits_for="first")
    output, _ = process.communicate(timeout=DEADLINE_S)

    assert process.returncode == 1, output
    assert "ValueError: boom" in output
    assert what_is_left(api) == []


def test_f47_f48_a_second_ctrl_c_leaves_nothing(start: Start, api: Cluster) -> None:
    process = start("never_stops", notice_s=1000)
    run_id_of(process)
    assert process.stdout is not None

    process.send_signal(signal.SIGINT)
    while "stopping" not in process.stdout.readline():
        assert process.poll() is None
    process.send_signal(signal.SIGINT)
    output, _ = process.communicate(timeout=DEADLINE_S)

    assert process.returncode == 130, output
    assert what_is_left(api) == []


def test_f51_a_run_whose_launcher_was_killed_goes_on_until_its_stop(
    start: Start, api: Cluster
) -> None:
    process = start()
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


def test_a_run_that_never_stops_is_ended_by_force_after_its_launcher(
    start: Start, api: Cluster
) -> None:
    run_id = killed(start("never_stops", notice_s=1000))

    command("stop", "--now", run_id)

    assert what_is_left(api) == []


def test_a_run_whose_launcher_still_runs_is_listed_once_and_stopped_by_it(
    start: Start, api: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    process = start()
    run_id = run_id_of(process)

    assert [line.split()[0] for line in command("ps").splitlines()] == ["RUN", run_id]
    monkeypatch.setenv("LAUNCHPAD_RUNTIME_DIR", str(tmp_path))  # found by the cluster alone
    assert [line.split()[0] for line in command("ps").splitlines()] == ["RUN", run_id]
    command("stop", run_id)
    output, _ = process.communicate(timeout=DEADLINE_S)

    assert process.returncode == 0, output
    assert what_is_left(api) == []


# A program that a script has left there.

SUPERVISOR = "launchpad/worker=supervisor"


def leave(function: Callable[[], None]) -> lp.Detached:
    return lp.launch(single(lp.PyNode(function), "one"), "kubernetes", detach=True)


def kubectl(api: Cluster, *arguments: str) -> str:
    command = ["kubectl", "-n", api.namespace, *arguments]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def test_a_failure_is_raised_and_stays_in_the_log_until_the_rest_is_stopped(api: Cluster) -> None:
    left = leave(pod_nodes.raises)

    with pytest.raises(lp.ProgramFailed, match="ValueError: boom") as failed:
        left.wait(DEADLINE_S)

    assert failed.value.worker == "one-0"
    assert failed.value.log_path.startswith("kubectl logs job/")
    assert "boom" in kubectl(api, *failed.value.log_path.split()[1:])
    assert "the last line" in left.logs("one-0")
    assert [row.state for row in left.status()] == ["failed"]
    left.stop()
    until(lambda: what_is_left(api) == [])


@pytest.mark.parametrize("force", [(), ("--force", "--grace-period=0")])
def test_a_supervisor_whose_pod_is_deleted_stops_and_launches_nothing(
    api: Cluster, force: tuple[str, ...]
) -> None:
    left = leave(pod_nodes.waits)
    until(lambda: "waiting" in left.logs("one-0"))

    kubectl(api, "delete", "pod", "-l", SUPERVISOR, *force)
    with pytest.raises(
        lp.LaunchError, match="cannot take over its workers, so the program was end"
    ):
        left.wait(DEADLINE_S)

    of_group = ("get", "pods", "-o", "name", "-l", "launchpad/group=one")
    until(lambda: "pod/" not in kubectl(api, *of_group))
    left.stop()
    until(lambda: what_is_left(api) == [])


def test_a_run_whose_supervisor_was_killed_is_stopped_all_the_same(api: Cluster) -> None:
    left = leave(pod_nodes.waits)
    until(lambda: "waiting" in left.logs("one-0"))
    assert "in waits" in left.stacks(["one-0"])["one-0"]
    assert [worker.state for worker in left.metrics().workers] == ["running"]
    left.ask_to_restart("one-0")
    until(lambda: [(row.state, row.attempt) for row in left.status()] == [("running", 2)])

    kubectl(api, "exec", f"job/{_job(api)}", "--", "python3", "-c", KILL)
    with pytest.raises(lp.LaunchError, match="supervisor was lost"):
        left.wait(DEADLINE_S)
    assert [row.state for row in left.status()] == ["running"]

    left.stop()
    until(lambda: what_is_left(api) == [])


KILL = """
import os, pathlib, signal
for process in pathlib.Path("/proc").glob("[0-9]*"):
    if b".launcher" + b"_pod" in (process / "cmdline").read_bytes():
        os.kill(int(process.name), signal.SIGKILL)
"""


def _job(api: Cluster) -> str:
    (job,) = api.list("Job", SUPERVISOR)[0]
    return str(job["metadata"]["name"])
