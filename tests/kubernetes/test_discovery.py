"""A run whose launcher is gone is found on its cluster, read, and ended; with one that is not there."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import launchpad as lp
from launchpad.courier import keyring
from launchpad.launch.backends.kubernetes import create_run, pod_messages, termination
from launchpad.launch.backends.kubernetes.attempt import Jobs, PodAttempt
from launchpad.launch.backends.kubernetes.backend import TestKubernetes
from launchpad.launch.backends.kubernetes.detached import detached_run, runs
from launchpad.launch.backends.kubernetes.settings import Settings
from launchpad.launch.backends.launcher_info import RunSecrets
from launchpad.launch.detached import Detached
from launchpad.launch.rundir.directory import RunDirectory
from launchpad.outcome import FAILED, STOPPED, Outcome
from launchpad.runtime.events import Ended, Ready
from tests.kubernetes.fake_cluster import FakeCluster
from tests.kubernetes.test_detached import plan_of_two
from tests.waiting import until


class Left:
    """A run of two workers, as a launcher leaves it that is killed once it has made their Jobs."""

    def __init__(self, cluster: FakeCluster) -> None:
        self._plan = plan_of_two()
        self.directory = RunDirectory.create("left")
        keyring.add(self.directory.scope, bytes(32))
        try:
            keys = RunSecrets.of(self.directory.scope, "kubernetes")
            settings = Settings(image="image")
            self._run = create_run.make(cluster, self._plan, self.directory, settings, keys)
        finally:
            keyring.remove(self.directory.scope)
        self._jobs = Jobs(cluster, self._run)
        self.name = self._run.name

    def start(self, worker: str, attempt: int = 1) -> None:
        """Has it a Job, and so a pod."""
        self._jobs.create(PodAttempt(worker, attempt), self._plan.worker(worker), b"")


@pytest.fixture
def left(cluster: FakeCluster) -> Left:
    left = Left(cluster)
    for worker in ("loop-0", "loop-1"):
        left.start(worker)
    return left


@pytest.fixture
def found(cluster: FakeCluster, left: Left) -> Detached:
    """The run, as it is found."""
    (found,) = runs.find(cluster)
    return found


@pytest.fixture
def running(cluster: FakeCluster, left: Left) -> list[str]:
    """Its pods, which run."""
    pods = [cluster.pod("loop-0"), cluster.pod("loop-1")]
    for pod in pods:
        cluster.run(pod)
    return pods


def grace_s(cluster: FakeCluster, pods: list[str]) -> list[float]:
    """How long these pods are given to stop."""
    metadata = [cluster.objects["Pod", pod]["metadata"] for pod in pods]
    return [each["deletionGracePeriodSeconds"] for each in metadata]


# Found.


def test_a_run_is_found_with_its_record(cluster: FakeCluster, left: Left) -> None:
    (found,) = runs.find(cluster)

    assert found.run_id == left.directory.run_id
    assert found.record.program == "left"
    assert found.record.workers == {"loop-0": "loop", "loop-1": "loop"}
    assert found.record.host
    assert not found.record.is_running
    assert not found.has_ended()


def test_runs_of_one_cluster_are_told_apart(cluster: FakeCluster, left: Left) -> None:
    other = Left(cluster)
    other.start("loop-0")
    cluster.run(cluster.pod("loop-0"))

    found = {each.run_id: each for each in runs.find(cluster)}

    assert set(found) == {left.directory.run_id, other.directory.run_id}
    found[left.directory.run_id].ask_to_stop(at_once=True)
    remaining = {each["metadata"]["labels"]["launchpad/run"] for each in cluster.objects.values()}
    assert other.name in remaining


@pytest.mark.parametrize(
    "record", [None, "no JSON", "null", '{"run_id": "x"}', '{"run_id": "x", "not": "known"}']
)
def test_what_others_made_is_passed_over(
    cluster: FakeCluster, left: Left, record: str | None
) -> None:
    root = cluster.read("ConfigMap", left.name)
    root["metadata"]["name"] = "other-00000000"
    root["data"] = {} if record is None else {"record": record}
    cluster.create(root)
    cluster.create({"kind": "ConfigMap", "metadata": {"name": "theirs"}, "data": {}})

    assert [each.run_id for each in runs.find(cluster)] == [left.directory.run_id]


def test_a_cluster_is_asked_only_where_one_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("KUBECONFIG", raising=False)

    assert TestKubernetes().detached() == []


def test_what_keeps_one_from_looking_is_named(cluster: FakeCluster, found: Detached) -> None:
    cluster.is_reachable = False
    with pytest.raises(lp.LaunchError, match="cannot be listed: the fake cluster does not answer"):
        runs.find(cluster)
    with pytest.raises(lp.LaunchError, match="does not tell of this run: the fake cluster"):
        found.status()

    cluster.is_reachable = True
    cluster.refused = {("list", "ConfigMap"), ("delete", "ConfigMap"), ("delete", "Pod")}
    with pytest.raises(lp.LaunchError, match="'mine' of the cluster you may not list configmaps"):
        runs.find(cluster)
    with pytest.raises(lp.LaunchError, match="list configmaps, delete configmaps, delete pods"):
        found.stop()
    cluster.refused = {("list", "ConfigMap")}
    Left(cluster)  # a launch takes no right to look


# What its workers do.


def ends_with(cluster: FakeCluster, pod: str, exit_code: int, said: Outcome) -> None:
    cluster.run(pod)
    cluster.end(pod, exit_code, message=pod_messages.termination_message(said).decode())


FAILED_WORKER = Outcome("loop-0", FAILED, cause="ValueError: boom")
STOPPED_WORKER = Outcome("loop-1", STOPPED, cause="it was asked to")


@pytest.mark.parametrize(
    ("happens", "state", "cause"),
    [
        (lambda c, pod: None, "starting", ""),
        (lambda c, pod: c.lose(pod), "pending", ""),
        (
            lambda c, pod: c.refuse_to_place(pod, "0/3 nodes"),
            "starting",
            "Unschedulable: 0/3 nodes",
        ),
        (
            lambda c, pod: c.wait(pod, "ImagePullBackOff", "no such image"),
            "starting",
            "ImagePullBackOff: no such image",
        ),
        (lambda c, pod: c.run(pod), "running", ""),
        (lambda c, pod: [c.run(pod), c.delete("Pod", pod)], "stopping", ""),
        (lambda c, pod: ends_with(c, pod, 1, FAILED_WORKER), "failed", "ValueError: boom"),
        (lambda c, pod: ends_with(c, pod, 0, STOPPED_WORKER), "stopped", "it was asked to"),
        (lambda c, pod: c.end(pod), "succeeded", ""),
        (lambda c, pod: c.end(pod, 137, "OOMKilled"), "failed", "OOMKilled"),
    ],
)
def test_a_worker_is_shown_as_its_pod_is_and_as_its_launcher_would_have_shown_its_end(
    cluster: FakeCluster,
    found: Detached,
    happens: Callable[[FakeCluster, str], Any],
    state: str,
    cause: str,
) -> None:
    happens(cluster, cluster.pod("loop-0"))

    row, other = found.status()
    assert (row.worker, row.label, row.state) == ("loop-0", "loop", state)
    assert row.attempt == (0 if state == "pending" else 1)
    assert cause in row.cause
    assert bool(cause) is bool(row.cause)
    assert other.state == "starting"


def test_the_newest_of_several_attempts_is_shown(
    cluster: FakeCluster, left: Left, found: Detached
) -> None:
    for attempt in range(2, 12):
        left.start("loop-0", attempt)
    cluster.run(cluster.pod("loop-0", 11))

    row = found.status()[0]
    assert (row.state, row.attempt) == ("running", 11)


def test_looking_deletes_nothing(cluster: FakeCluster, found: Detached, running: list[str]) -> None:
    cluster.end(running[0])
    before = set(cluster.objects)

    assert not found.has_ended()
    assert [row.state for row in found.status()] == ["succeeded", "running"]
    assert found.stacks(["loop-0"]) == {"loop-0": "(only its launcher can ask for stacks)\n"}
    assert set(cluster.objects) == before


# What they have printed.


def test_logs_are_the_users_lines_of_the_newest_attempt(
    cluster: FakeCluster, left: Left, found: Detached, running: list[str]
) -> None:
    cluster.write(running[0], "of the first attempt")
    cluster.end(running[0], 1)
    left.start("loop-0", 2)
    pod = cluster.pod("loop-0", 2)
    cluster.run(pod)
    cluster.report(pod, Ready("loop-0", 2, runs=True))
    theirs = pod_messages.MARK.decode() + "of the user's"
    cluster.write(pod, "one", "", pod_messages.escaped(theirs.encode()).decode(), "déjà vu")
    cluster.report(pod, Ended(Outcome("loop-0", STOPPED)))

    assert found.logs("loop-0") == f"one\n\n{theirs}\ndéjà vu\n"
    assert found.logs("loop-0", len(f"one\n\n{theirs}\n")) == "déjà vu\n"


def test_who_has_not_begun_or_is_gone_has_printed_nothing_and_the_kubelet_s_words_are_not_theirs(
    cluster: FakeCluster, found: Detached, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster.lose(cluster.pod("loop-1"))
    assert [found.logs(worker) for worker in ("loop-0", "loop-1")] == ["", ""]

    words = b"unable to retrieve container logs for containerd://3f9a"
    monkeypatch.setattr(cluster, "log", lambda pod, follow: iter([words]))
    assert found.logs("loop-0") == ""


# Ended.


def test_stop_asks_pods_and_deletes_all(
    cluster: FakeCluster, found: Detached, running: list[str]
) -> None:
    found.ask_to_stop()

    assert not found.has_ended()
    assert set(cluster.objects) == {("Pod", pod) for pod in running}
    assert min(grace_s(cluster, running)) > 1
    for pod in running:
        cluster.end(pod)
    assert found.has_ended()
    assert cluster.objects == {}
    assert runs.find(cluster) == []


def test_by_force_pods_get_little_time_and_are_taken_off_the_list_if_their_node_does_nothing(
    cluster: FakeCluster, found: Detached, running: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(detached_run, "_ESCALATE_S", 0.1)

    found.ask_to_stop(at_once=True)
    assert grace_s(cluster, running) == [1, 1]
    assert not found.has_ended()
    found.stop(at_once=True)

    assert cluster.objects == {}


@pytest.mark.parametrize("has_launcher", [False, True])
def test_pods_that_a_kubelet_leaves_on_the_list_are_taken_off_it(
    cluster: FakeCluster,
    left: Left,
    found: Detached,
    running: list[str],
    has_launcher: bool,
) -> None:
    cluster.is_slow = True
    for pod in running:
        cluster.end(pod)
    if has_launcher:
        termination.remove(cluster, left.name)
    else:
        found.ask_to_stop()
        until(found.has_ended)

    assert cluster.objects == {}


def test_a_stop_can_be_made_again(
    cluster: FakeCluster, found: Detached, running: list[str]
) -> None:
    found.ask_to_stop()
    cluster.is_reachable = False
    with pytest.raises(lp.LaunchError, match="does not answer"):
        found.stop()
    cluster.is_reachable = True
    for pod in running:
        cluster.end(pod)

    found.stop()

    assert cluster.objects == {}


def test_waiting_ends_when_a_run_was_ended_elsewhere(
    cluster: FakeCluster, left: Left, found: Detached
) -> None:
    with pytest.raises(TimeoutError):
        found.wait(0.01)
    cluster.delete("ConfigMap", left.name)

    found.wait(10)
