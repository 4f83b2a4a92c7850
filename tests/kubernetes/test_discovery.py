"""A run whose launcher is gone is found on its cluster, read, and ended; with one that is not there."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator

import pytest

import launchpad as lp
from launchpad.courier import keyring
from launchpad.events import Ended, Ready
from launchpad.launch.backends.kubernetes import create_run, pod_messages, termination
from launchpad.launch.backends.kubernetes.api.client import Manifest
from launchpad.launch.backends.kubernetes.attempt import Jobs, PodAttempt
from launchpad.launch.backends.kubernetes.backend import TestKubernetes
from launchpad.launch.backends.kubernetes.detached import detached_run, runs
from launchpad.launch.backends.kubernetes.settings import FILE, Settings
from launchpad.launch.backends.launch_origin import RunSecrets
from launchpad.launch.detached import Detached
from launchpad.launch.planning import planner
from launchpad.launch.rundir.directory import RunDirectory
from launchpad.outcome import FAILED, STOPPED, Outcome
from tests import nodes
from tests.kubernetes.fake_cluster import FakeCluster
from tests.waiting import until

OTHER_ROOT = "other-00000000"


class Left:
    """A run of two workers, as a launcher leaves it that is killed once it has made their Jobs."""

    def __init__(self, cluster: FakeCluster) -> None:
        program = lp.Program("left")
        with program.group("loop"):
            for _ in range(2):
                program.add_node(lp.PyClassNode(nodes.Loop))
        self._plan = planner.plan(program, TestKubernetes(image="image"), "kubernetes")
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


@pytest.fixture(autouse=True)
def nothing_is_set_outside(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(FILE, raising=False)


@pytest.fixture
def cluster() -> FakeCluster:
    return FakeCluster("mine")


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
def running(cluster: FakeCluster, left: Left) -> Iterator[list[str]]:
    """Its pods, which run."""
    pods = [cluster.pod("loop-0"), cluster.pod("loop-1")]
    for pod in pods:
        cluster.run(pod)
    return pods


def states(found: Detached) -> list[tuple[str, str, int]]:
    return [(row.worker, row.state, row.attempt) for row in found.status()]


def metadata(cluster: FakeCluster, pod: str) -> Manifest:
    """Of a pod."""
    found: Manifest = cluster.objects["Pod", pod]["metadata"]
    return found


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


def test_on_an_empty_cluster_there_is_none(cluster: FakeCluster) -> None:
    assert runs.find(cluster) == []


@pytest.mark.parametrize(
    "annotations",
    [
        None,
        {},
        {"launchpad/record": "no JSON"},
        {"launchpad/record": "null"},
        {"launchpad/record": json.dumps({"run_id": "x"})},
        {"launchpad/record": json.dumps({"run_id": "x", "not": "known"})},
    ],
)
def test_a_root_of_another_version_is_passed_over(
    cluster: FakeCluster, left: Left, annotations: dict[str, str] | None
) -> None:
    root = cluster.read("Secret", left.name)
    root["metadata"]["name"] = OTHER_ROOT
    del root["metadata"]["annotations"]
    if annotations is not None:
        root["metadata"]["annotations"] = annotations
    cluster.create(root)

    assert [each.run_id for each in runs.find(cluster)] == [left.directory.run_id]


def test_other_secrets_are_passed_over(cluster: FakeCluster, left: Left) -> None:
    theirs = {"data": {"key": base64.b64encode(b"value").decode()}}
    cluster.create({"kind": "Secret", "metadata": {"name": "theirs"}, **theirs})

    assert [each.run_id for each in runs.find(cluster)] == [left.directory.run_id]


def test_a_cluster_is_asked_only_where_one_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("KUBECONFIG", raising=False)

    assert TestKubernetes().detached() == []


# What cannot be asked.


def test_a_cluster_that_does_not_answer_is_an_error_of_the_launch(
    cluster: FakeCluster, found: Detached
) -> None:
    cluster.is_reachable = False

    with pytest.raises(lp.LaunchError, match="cannot be listed: the fake cluster does not answer"):
        runs.find(cluster)
    with pytest.raises(lp.LaunchError, match="does not tell of this run: the fake cluster"):
        found.status()


def test_the_right_that_is_missing_to_look_is_named(cluster: FakeCluster) -> None:
    cluster.refused = {("list", "Secret")}

    with pytest.raises(lp.LaunchError, match="'mine' of the cluster you may not list secrets"):
        runs.find(cluster)


def test_all_rights_that_are_missing_to_stop_are_named(
    cluster: FakeCluster, found: Detached
) -> None:
    cluster.refused = {("delete", "Secret"), ("delete", "Pod")}

    with pytest.raises(lp.LaunchError, match="you may not delete secrets, delete pods"):
        found.stop()


def test_a_launch_needs_no_right_to_look(cluster: FakeCluster) -> None:
    cluster.refused = {("list", "Secret")}

    Left(cluster)

    assert [kind for kind, _ in cluster.objects] == ["Secret", "Service"]


# What its workers do.


def test_a_worker_is_pending_without_a_pod_and_starting_with_one(
    cluster: FakeCluster, found: Detached
) -> None:
    cluster.lose(cluster.pod("loop-1"))

    assert states(found) == [("loop-0", "starting", 1), ("loop-1", "pending", 0)]


def test_why_a_worker_does_not_start_is_told(cluster: FakeCluster, found: Detached) -> None:
    cluster.refuse_to_place(cluster.pod("loop-0"), "0/3 nodes are available")
    cluster.wait(cluster.pod("loop-1"), "ImagePullBackOff", "no such image")

    assert [row.cause for row in found.status()] == [
        "Unschedulable: 0/3 nodes are available",
        "ImagePullBackOff: no such image",
    ]


def test_a_worker_runs_as_soon_as_its_container_does(found: Detached, running: list[str]) -> None:
    assert states(found) == [("loop-0", "running", 1), ("loop-1", "running", 1)]
    assert [row.label for row in found.status()] == ["loop", "loop"]


def test_a_worker_whose_pod_is_deleted_is_stopping(
    cluster: FakeCluster, found: Detached, running: list[str]
) -> None:
    cluster.delete("Pod", running[0])

    assert states(found)[0] == ("loop-0", "stopping", 1)


def test_a_worker_that_has_ended_is_shown_as_its_launcher_would_have(
    cluster: FakeCluster, found: Detached, running: list[str]
) -> None:
    failed = Outcome("loop-0", FAILED, cause="ValueError: boom")
    stopped = Outcome("loop-1", STOPPED, cause="it was asked to")
    cluster.end(running[0], 1, message=pod_messages.termination_message(failed).decode())
    cluster.end(running[1], 0, message=pod_messages.termination_message(stopped).decode())

    assert states(found) == [("loop-0", "failed", 1), ("loop-1", "stopped", 1)]
    assert [row.cause for row in found.status()] == ["ValueError: boom", "it was asked to"]


def test_a_worker_that_ended_without_a_word_is_shown_by_its_exit_code(
    cluster: FakeCluster, found: Detached, running: list[str]
) -> None:
    cluster.end(running[0])
    cluster.end(running[1], exit_code=137, reason="OOMKilled")

    assert states(found) == [("loop-0", "succeeded", 1), ("loop-1", "failed", 1)]
    assert found.status()[0].cause == ""
    assert "OOMKilled" in found.status()[1].cause


def test_of_several_attempts_the_newest_is_shown(
    cluster: FakeCluster, left: Left, found: Detached
) -> None:
    for attempt in range(2, 12):
        left.start("loop-0", attempt)
    cluster.run(cluster.pod("loop-0", 11))

    assert states(found)[0] == ("loop-0", "running", 11)


def test_of_a_run_that_was_not_ended_nothing_is_deleted_by_looking(
    cluster: FakeCluster, found: Detached, running: list[str]
) -> None:
    cluster.end(running[0])
    before = set(cluster.objects)

    assert not found.has_ended()
    assert [row.state for row in found.status()] == ["succeeded", "running"]
    assert set(cluster.objects) == before


def test_no_launcher_is_left_to_ask_for_stacks(found: Detached) -> None:
    assert found.stacks(["loop-0"]) == {"loop-0": "(only its launcher can ask for stacks)\n"}


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


def test_what_the_kubelet_says_itself_is_no_line_of_the_users(
    cluster: FakeCluster,
    found: Detached,
    running: list[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    words = b"unable to retrieve container logs for containerd://3f9a"
    monkeypatch.setattr(cluster, "log", lambda pod, follow: iter([words]))

    assert found.logs("loop-0") == ""


def test_who_has_not_begun_or_is_gone_has_printed_nothing(
    cluster: FakeCluster, found: Detached
) -> None:
    cluster.lose(cluster.pod("loop-1"))

    assert [found.logs(worker) for worker in ("loop-0", "loop-1")] == ["", ""]


# Ended.


def test_stop_asks_the_pods_and_deletes_everything(
    cluster: FakeCluster, found: Detached, running: list[str]
) -> None:
    found.ask_to_stop()

    assert not found.has_ended()
    assert set(cluster.objects) == {("Pod", pod) for pod in running}
    for pod in running:
        assert metadata(cluster, pod)["deletionGracePeriodSeconds"] > 1
        cluster.end(pod)
    assert found.has_ended()
    assert cluster.objects == {}
    assert runs.find(cluster) == []


def test_stop_ends_a_run_whose_workers_have_ended(
    cluster: FakeCluster, found: Detached, running: list[str]
) -> None:
    for pod in running:
        cluster.end(pod)

    found.stop()

    assert cluster.objects == {}


def test_by_force_pods_get_little_time(
    cluster: FakeCluster, found: Detached, running: list[str]
) -> None:
    found.ask_to_stop(at_once=True)

    assert [metadata(cluster, pod)["deletionGracePeriodSeconds"] for pod in running] == [1, 1]
    assert not found.has_ended()


def test_by_force_a_pod_is_taken_off_the_list_whose_node_does_not_end_it(
    cluster: FakeCluster,
    found: Detached,
    running: list[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(detached_run, "_ESCALATE_S", 0.1)

    found.stop(at_once=True)

    assert cluster.objects == {}


def test_pods_that_a_kubelet_leaves_on_the_list_are_taken_off_it(
    cluster: FakeCluster, found: Detached, running: list[str]
) -> None:
    cluster.is_slow = True
    cluster.end(running[0])
    found.ask_to_stop()
    cluster.end(running[1])
    assert {("Pod", pod) for pod in running} == set(cluster.objects)

    until(found.has_ended)

    assert cluster.objects == {}


def test_a_launcher_takes_them_off_it_too(cluster: FakeCluster, left: Left) -> None:
    cluster.is_slow = True
    for worker in ("loop-0", "loop-1"):
        cluster.run(cluster.pod(worker))
        cluster.end(cluster.pod(worker))

    termination.remove(cluster, left.name)

    assert cluster.objects == {}


def test_a_stop_that_was_broken_off_can_be_made_again(
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


def test_waiting_for_a_run_ends_when_it_was_ended_from_elsewhere(
    cluster: FakeCluster, left: Left, found: Detached
) -> None:
    with pytest.raises(TimeoutError):
        found.wait(0.01)
    cluster.delete("Secret", left.name)

    found.wait(10)
