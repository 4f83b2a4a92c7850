"""Launches on a real cluster, that of KUBECONFIG: how pods end, what they are given, and what is refused."""

from __future__ import annotations

import base64
import json
import os
import re
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import launchpad as lp
from launchpad.launch.backends.kubernetes.api.client import Cluster
from tests.helpers import gpu_nodes, hostile_peers, pod_nodes, remote_nodes
from tests.helpers.leaked_secrets import assert_in_none, files_below, forms_of_secrets, of_processes
from tests.kubernetes import namespaces
from tests.waiting import until

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("pods_run_this")]

DEADLINE_S = 90.0
FOREVER = lp.RestartPolicy(max_restarts=10, backoff=0.0)


# How pods end.


@pytest.mark.timeout(240)  # five pods after each other
def test_f22_f23_f28_a_worker_is_found_in_another_pod_however_its_pod_ended(api: Cluster) -> None:
    program = lp.Program("cluster")
    memory = lp.Resources(memory="200MiB")
    with program.group("server", restart=FOREVER, resources=memory):
        server = program.add_node(lp.CourierNode(pod_nodes.Server))
    program.add_node(lp.PyClassNode(pod_nodes.Caller, server, 5), label="caller")

    with lp.launch(program, "test_kubernetes") as running:
        client: Any = running.client("server")

        def attempt_ends(number: int, cause: str) -> None:
            until(lambda: running.status()[0].attempt == number + 1, DEADLINE_S)
            assert cause in running.status()[0].cause
            until(lambda: f"reached attempt {number + 1}" in running.logs("caller"), DEADLINE_S)

        until(lambda: "reached attempt 1" in running.logs("caller"))
        with pytest.raises(lp.courier.CourierError):
            client.die()
        attempt_ends(1, "killed by SIGKILL")
        kill_container(pod_of(api, "server-0")["metadata"]["uid"])
        attempt_ends(2, "SIGKILL")
        api.delete("Pod", pod_of(api, "server-0")["metadata"]["name"])
        attempt_ends(3, "deleted, and not by us")
        with pytest.raises(lp.courier.CourierError):
            client.eat()
        attempt_ends(4, "memory")

        running.wait(DEADLINE_S, labels=["caller"])


def pod_of(api: Cluster, worker: str) -> dict[str, Any]:
    """The pod that runs of a worker; this host runs one program at a time."""

    def found() -> Any:
        pods, _ = api.list("Pod", f"launchpad/worker={worker}")
        return [p for p in pods if "deletionTimestamp" not in p["metadata"]]

    pod: dict[str, Any] = until(found)[-1]
    return pod


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


# What they are given, and say.


def test_payloads_of_more_than_a_secret_holds_arrive_whole() -> None:
    sizes = [500_000, 3_000_000, 9_000_000]
    program = lp.Program("payloads")
    with program.group("one"):
        for size in sizes:
            program.add_node(lp.PyNode(pod_nodes.holds, os.urandom(size)))

    running = lp.testing.run(program, DEADLINE_S, "test_kubernetes")

    assert [running.logs(f"one-{i}") for i in range(3)] == [f"{size}\n" for size in sizes]


def test_f31_to_f36_hard_cases_and_large_payloads_pass_between_pods() -> None:
    program = lp.Program("pairs")
    hard = program.add_node(lp.CourierNode(remote_nodes.Hard), label="hard")
    program.add_node(lp.PyNode(remote_nodes.meet_hard_cases, hard), label="cases")
    echo = program.add_node(lp.CourierNode(remote_nodes.Hard), label="echo")
    program.add_node(lp.PyNode(remote_nodes.send_much, echo, 1 << 28), label="payload")

    running = lp.testing.run(program, DEADLINE_S, "test_kubernetes")

    assert "met all hard cases" in running.logs("cases")
    grown = running.logs("payload").split("grown")[1].split()
    assert len(grown) == 2
    assert max(map(float, grown)) < 2.2, "memory, as a multiple of the payload"


def test_f39_f40_f44_strangers_at_the_port_of_a_pod_do_not_disturb_it() -> None:
    program = lp.Program("apart")
    program.add_node(lp.CourierNode(remote_nodes.Hard), label="hard")

    with lp.launch(program, "test_kubernetes") as running:
        with running.client("hard") as hard:
            assert hard.echo(1) == 1
            hostile_peers.assert_undisturbed(hard)
        running.stop()


def test_what_is_secret_stands_in_secrets_only(api: Cluster) -> None:
    password = b"the password of the user's own"
    program = lp.Program("secret")
    key = "a key in the environment"
    with program.group("keeper", resources=lp.Resources(env={"API_KEY": key})):
        program.add_node(lp.PyNode(pod_nodes.keeps, password))
    program.add_node(lp.CourierNode(pod_nodes.Server), label="server")

    with lp.launch(program, "test_kubernetes") as running:
        until(lambda: f"kept {len(password)} {len(key)}" in running.logs("keeper"))
        until(lambda: all(status.state == "running" for status in running.status()))
        secrets = [*forms_of_secrets(running), password, base64.b64encode(password)]
        found = {
            kind: api.list(kind, "launchpad/program=secret")[0]
            for kind in ("Job", "Pod", "Service")
        }
        names = [pod["metadata"]["name"] for pod in found["Pod"]]
        logs = {name: b"\n".join(api.log(name, follow=False)) for name in names}
        of_others = of_processes("cmdline") | of_processes("environ")

    assert len(logs) == 2
    objects = {kind: json.dumps(of_kind).encode() for kind, of_kind in found.items()}
    assert_in_none("objects", objects, [*secrets, key.encode()])
    assert_in_none("what pods print", logs, secrets)
    assert_in_none("command lines and environments", of_others, secrets)
    assert_in_none("logs of the run", files_below(running.log_directory), secrets)


def test_who_writes_more_than_its_folder_may_hold_is_evicted_and_told_how_to_get_more() -> None:
    program = lp.Program("writes")
    program.add_node(lp.PyNode(pod_nodes.writes, "/tmp", 50 << 20), label="one")
    little = {"ephemeral-storage": "20Mi"}

    running = lp.launch(program, "test_kubernetes", default_resources=little)
    with pytest.raises(lp.ProgramFailed, match="Evicted: ") as evicted, running:
        running.wait(DEADLINE_S)

    report = str(evicted.value)
    assert re.search(r"(EmptyDir|ephemeral).* exceeds the .*limit.* \"?20Mi", report), report
    assert "for more room, set default_resources={'ephemeral-storage': …}" in report


# What is refused.


@pytest.fixture
def no_more_pods() -> Iterator[None]:
    """A quota of the namespace."""
    with namespaces.quota({"pods": "0"}):
        yield


@pytest.mark.usefixtures("no_more_pods")
def test_f20_where_no_pod_can_be_had_the_quota_is_named() -> None:
    program = lp.Program("refused")
    program.add_node(lp.PyNode(pod_nodes.waits), label="one")

    running = lp.launch(program, "test_kubernetes", pending_timeout_s=3)
    with pytest.raises(lp.ProgramFailed) as refused, running:
        running.wait(DEADLINE_S)

    report = str(refused.value)
    assert "one-0 failed in start (attempt 1): the cluster has made no pod for it in 3 s" in report
    assert "exceeded quota: none-left, requested: pods=1, used: pods=0, limited: pods=0" in report


@pytest.fixture
def limits_are_counted() -> Iterator[None]:
    """By a quota of the namespace, without a LimitRange that would fill them in."""
    counted = ("limits.cpu", "requests.cpu", "limits.memory", "requests.memory")
    with namespaces.quota({**dict.fromkeys(counted, "4Gi"), "requests.ephemeral-storage": "4Gi"}):
        yield


@pytest.mark.usefixtures("limits_are_counted")
def test_where_a_quota_counts_limits_workers_run_with_default_resources_only() -> None:
    program = lp.Program("counted")
    program.add_node(lp.PyNode(pod_nodes.holds, b"12"), label="one")

    began = time.monotonic()
    running = lp.launch(program, "test_kubernetes")
    with pytest.raises(lp.ProgramFailed, match="must specify") as refused, running:
        running.wait(DEADLINE_S)
    took_s = time.monotonic() - began
    defaults = {"cpu": "100m", "memory": "256Mi"}
    accepted = lp.testing.run(program, DEADLINE_S, "test_kubernetes", default_resources=defaults)
    left = lp.launch(program, "kubernetes", detach=True, default_resources=defaults)
    left.wait(DEADLINE_S)
    left.stop()

    assert took_s < 60, "it was waited for, though it could not come"  # pending_timeout_s
    assert "set default_resources={'cpu': …, 'memory': …}" in str(refused.value)
    assert accepted.logs("one") == "2\n"


def test_gpus_are_given_disjointly_and_who_finds_none_left_is_told_the_arithmetic() -> None:
    if (there := namespaces.number_of_gpus()) != 4:
        pytest.skip(f"needs a cluster with 4 GPUs, and this one has {there}")

    with lp.launch(with_gpus(two=2, one=1, other=1, nobody=0), "test_kubernetes") as running:
        told = [
            until(lambda label=label: running.logs(label)).rstrip("\n").split("|")
            for label in ("two", "one", "other", "nobody")
        ]
        late = lp.launch(with_gpus(a=1, b=1), "test_kubernetes", pending_timeout_s=3)
        with pytest.raises(lp.ProgramFailed) as refused, late:
            late.wait(DEADLINE_S)

    given, ours, cuda = zip(*told, strict=True)
    devices = [device for each in given[:3] for device in each.split(",")]
    assert sorted(devices) == ["0", "1", "2", "3"]
    assert given[3] == "none"
    assert ours == ("0,1", "0", "0", "")
    assert cuda[3] == ""
    report = str(refused.value)
    assert "pending for 3 s: Unschedulable: 0/1 nodes are available" in report
    assert "1 Insufficient nvidia.com/gpu" in report
    assert "it asks for 1 GPU, and its program for a 1×1 GPU + b 1×1 GPU = 2" in report


def with_gpus(**gpus: int) -> lp.Program:
    """Groups of one node, with so many GPUs."""
    program = lp.Program("gpus")
    for label, number in gpus.items():
        with program.group(label, resources=lp.Resources(gpus=number)):
            program.add_node(lp.PyNode(gpu_nodes.tells))
    return program
