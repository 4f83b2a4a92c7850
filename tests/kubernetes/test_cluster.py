"""A launch on a real cluster: the one of KUBECONFIG."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

import launchpad as lp
from launchpad.launch.backends.kubernetes.api.client import Cluster
from tests.helpers import pod_nodes
from tests.kubernetes.leak_check import what_is_left
from tests.waiting import until

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("pods_run_this")]

DEADLINE_S = 90.0
FOREVER = lp.RestartPolicy(max_restarts=10, backoff=0.0)


@contextmanager
def launched(program: lp.Program, **options: Any) -> Iterator[lp.Running]:
    running = lp.launch(program, "test_kubernetes", **options)
    try:
        yield running
    finally:
        running.stop()


def server_and_caller(attempt: int, memory: str | None = None) -> lp.Program:
    """A server that comes back, and a caller that waits for that attempt of it."""
    program = lp.Program("cluster")
    resources = lp.Resources(memory=memory)
    with program.group("server", restart=FOREVER, resources=resources):
        server = program.add_node(lp.CourierNode(pod_nodes.Server))
    with program.group("caller"):
        program.add_node(lp.PyClassNode(pod_nodes.Caller, server, attempt))
    return program


def single(function: Any, *arguments: Any, **resources: Any) -> lp.Program:
    program = lp.Program("single")
    with program.group("one", resources=lp.Resources(**resources)):
        program.add_node(lp.PyNode(function, *arguments))
    return program


def pod_of(api: Cluster, worker: str) -> dict[str, Any]:
    """The pod that runs of a worker; this host runs one program at a time."""

    def found() -> Any:
        pods, _ = api.list("Pod", f"launchpad/worker={worker}")
        return [p for p in pods if "deletionTimestamp" not in p["metadata"]]

    pod: dict[str, Any] = until(found)[-1]
    return pod


def test_a_call_goes_from_pod_to_pod_and_nothing_is_left(api: Cluster) -> None:
    with launched(server_and_caller(1)) as running:
        running.wait(DEADLINE_S)

        assert running.logs("caller") == "reached attempt 1\n"
    assert what_is_left(api) == []


def test_a_failure_is_reported_as_anywhere_else(api: Cluster) -> None:
    with launched(single(pod_nodes.raises)) as running, pytest.raises(lp.ProgramFailed) as caught:
        running.wait(DEADLINE_S)

    report = str(caught.value)
    assert "one-0 failed in run (attempt 1): ValueError: boom" in report
    assert 'raise ValueError("boom")' in report
    assert "the last line" in report
    assert what_is_left(api) == []


def test_f22_f28_a_worker_killed_by_a_signal_is_named_and_its_clients_find_it_in_another_pod() -> (
    None
):
    with launched(server_and_caller(2)) as running:
        until(lambda: "reached attempt 1" in running.logs("caller"))
        with pytest.raises(lp.courier.CourierError):
            running.client("server").die()

        running.wait(DEADLINE_S)

        server = running.status()[0]
        assert (server.attempt, server.label) == (2, "server")
        assert "reached attempt 2" in running.logs("caller")


def test_a_container_killed_from_outside_is_named_and_comes_back(api: Cluster) -> None:
    with launched(server_and_caller(2)) as running:
        until(lambda: "reached attempt 1" in running.logs("caller"))
        kill_container(pod_of(api, "server-0")["metadata"]["uid"])
        until(lambda: "SIGKILL" in running.status()[0].cause)

        running.wait(DEADLINE_S)


def test_a_pod_that_was_deleted_is_named_and_comes_back(api: Cluster) -> None:
    with launched(server_and_caller(2)) as running:
        until(lambda: "reached attempt 1" in running.logs("caller"))
        api.delete("Pod", pod_of(api, "server-0")["metadata"]["name"])
        until(lambda: "deleted, and not by us" in running.status()[0].cause)

        running.wait(DEADLINE_S)


def test_f23_a_worker_out_of_memory_is_named_and_comes_back() -> None:
    with launched(server_and_caller(2, memory="200MiB")) as running:
        until(lambda: "reached attempt 1" in running.logs("caller"))
        with pytest.raises(lp.courier.CourierError):
            running.client("server").eat()
        until(lambda: "memory" in running.status()[0].cause)

        running.wait(DEADLINE_S)


def test_what_can_be_placed_nowhere_fails_in_the_schedulers_words() -> None:
    program = single(pod_nodes.waits, cpus=500)

    with (
        launched(program, pending_timeout_s=2) as running,
        pytest.raises(lp.ProgramFailed) as caught,
    ):
        running.wait(DEADLINE_S)

    assert "Unschedulable: 0/1 nodes are available: 1 Insufficient cpu" in str(caught.value)
    assert "it asks for 500 CPUs" in str(caught.value)


def test_an_image_that_is_not_there_is_named() -> None:
    program = single(pod_nodes.waits)
    complaint = r"ErrImageNeverPull.*lp\.local/none:1"

    with (
        launched(program, image="lp.local/none:1") as running,
        pytest.raises(lp.ProgramFailed, match=complaint),
    ):
        running.wait(DEADLINE_S)


def test_a_stop_leaves_nothing(api: Cluster) -> None:
    with launched(single(pod_nodes.waits)) as running:
        until(lambda: "waiting" in running.logs("one"))
        running.stop()

    assert running.status()[0].state == "stopped"
    assert what_is_left(api) == []


@pytest.mark.parametrize("size", [500_000, 3_000_000, 9_000_000])
def test_a_payload_arrives_whole(size: int) -> None:
    with launched(single(pod_nodes.holds, os.urandom(size))) as running:
        running.wait(DEADLINE_S)

        assert running.logs("one") == f"{size}\n"


def kill_container(pod_uid: str) -> None:
    """Kills the first process of a pod's container, which runs on this host."""
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            is_ours = pod_uid in (folder / "cgroup").read_text()
            command = (folder / "cmdline").read_text().split("\0")
        except OSError:
            continue
        if is_ours and "launchpad.launch.backends.kubernetes.pod" in command:
            os.kill(int(folder.name), signal.SIGKILL)
            return
    raise AssertionError(f"no process of pod {pod_uid} is on this host")
