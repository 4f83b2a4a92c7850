"""A program that a script has left on a real cluster: how it ends, and that nothing remains."""

from __future__ import annotations

import subprocess

import pytest

import launchpad as lp
from launchpad.launch.backends.kubernetes.api.client import Cluster
from tests.helpers import pod_nodes
from tests.kubernetes.leak_check import what_is_left
from tests.waiting import until

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("pods_run_this")]

DEADLINE_S = 60.0
SUPERVISOR = "launchpad/worker=supervisor"


def program(kind: object) -> lp.Program:
    program = lp.Program("left")
    with program.group("one"):
        program.add_node(lp.PyNode(kind))  # type: ignore[arg-type]
    return program


def kubectl(api: Cluster, *arguments: str) -> str:
    command = ["kubectl", "-n", api.namespace, *arguments]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def test_a_failure_is_raised_and_stays_in_the_log_until_the_rest_is_stopped(api: Cluster) -> None:
    left = lp.launch(program(pod_nodes.raises), "kubernetes", detach=True)

    with pytest.raises(lp.ProgramFailed, match="ValueError: boom") as failed:
        left.wait(DEADLINE_S)

    assert failed.value.worker == "one-0"
    assert failed.value.log_path.startswith("kubectl logs job/")
    assert "boom" in kubectl(api, *failed.value.log_path.split()[1:])
    assert "the last line" in left.logs("one-0")
    assert [row.state for row in left.status()] == ["failed"]
    left.stop()
    until(lambda: what_is_left(api) == [])


def test_a_supervisor_whose_pod_is_deleted_stops_its_program_and_launches_no_other(
    api: Cluster,
) -> None:
    left = lp.launch(program(pod_nodes.waits), "kubernetes", detach=True)
    until(lambda: "waiting" in left.logs("one-0"))

    kubectl(api, "delete", "pod", "-l", SUPERVISOR)
    with pytest.raises(lp.LaunchError, match="was launched already"):
        left.wait(DEADLINE_S)

    assert "pod/" not in kubectl(api, "get", "pods", "-o", "name", "-l", "launchpad/group=one")
    left.stop()
    until(lambda: what_is_left(api) == [])


def test_a_run_whose_supervisor_was_killed_is_stopped_all_the_same(api: Cluster) -> None:
    left = lp.launch(program(pod_nodes.waits), "kubernetes", detach=True)
    until(lambda: "waiting" in left.logs("one-0"))
    assert "in waits" in left.stacks(["one-0"])["one-0"]
    assert [worker.state for worker in left.metrics().workers] == ["running"]
    left.ask_to_restart("one-0")
    until(lambda: [row.attempt for row in left.status()] == [2])

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
