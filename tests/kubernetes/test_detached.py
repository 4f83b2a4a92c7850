"""A program is left to a supervisor in the cluster; with a cluster that is not there."""

from __future__ import annotations

import base64
import concurrent.futures
import json
import pickle
import random
import string
import threading
import zlib
from collections.abc import Callable, Iterator
from dataclasses import asdict, replace
from typing import Any

import pytest

import launchpad as lp
from launchpad.launch.backends.kubernetes import pod_messages
from launchpad.launch.backends.kubernetes.api import client, permissions
from launchpad.launch.backends.kubernetes.api.client import Manifest
from launchpad.launch.backends.kubernetes.backend import TestKubernetes
from launchpad.launch.backends.kubernetes.create_run import Submitter
from launchpad.launch.backends.kubernetes.detached import (
    detached_run,
    launcher_manifests,
    launcher_state,
    runs,
)
from launchpad.launch.backends.kubernetes.detached.launcher_manifests import LauncherSpec
from launchpad.launch.backends.kubernetes.detached.launcher_state import ProgramEnded
from launchpad.launch.backends.kubernetes.launcher_pod import LauncherPod
from launchpad.launch.backends.kubernetes.manifests.names import Owner
from launchpad.launch.backends.kubernetes.pod_messages import PodCommands
from launchpad.launch.backends.kubernetes.settings import Settings
from launchpad.launch.detached import Detached
from launchpad.launch.plan import LaunchPlan
from launchpad.launch.planning import planner
from launchpad.launch.rundir.record import RunRecord
from launchpad.outcome import FAILED, Outcome
from tests import nodes
from tests.kubernetes.fake_cluster import FakeCluster

DEADLINE_S = 20.0
SETTINGS = Settings(image="image", pending_timeout_s=DEADLINE_S)
RECORD = {
    "run_id": "left-1122-120000-abcd",
    "program": "left",
    "launch_type": "kubernetes",
    "pid": 7,
    "began": 0.0,
    "runtime": "/tmp/none",
    "logs": "/tmp/none",
    "workers": {},
    "host": "supervisor",
    "gpus": {},
}
FAILURE = Outcome("loop-0", FAILED, "run", 2, "ValueError: on purpose", traceback="Traceback …")

Leaving = concurrent.futures.Future[Detached]


@pytest.fixture
def cluster() -> FakeCluster:
    return FakeCluster("mine")


@pytest.fixture
def leave(cluster: FakeCluster) -> Iterator[Callable[[], Leaving]]:
    """Leaves a program of two workers there, in a thread: the test is the cluster meanwhile."""
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        yield lambda: pool.submit(runs.launch, cluster, plan_of_two(), SETTINGS, 5.0)


def plan_of_two() -> LaunchPlan:
    program = lp.Program("left")
    with program.group("loop"):
        for _ in range(2):
            program.add_node(lp.PyClassNode(nodes.Loop))
    return planner.plan(program, TestKubernetes(image="image"), "kubernetes")


@pytest.fixture
def begun(cluster: FakeCluster, leave: Callable[[], Leaving]) -> tuple[str, Detached]:
    """The supervisor's pod, which has launched, and what the script has of it."""
    future = leave()
    pod = cluster.pod(launcher_manifests.NAME)
    cluster.run(pod)
    tell(cluster, pod, launcher_state.LAUNCHED, RECORD)
    return pod, future.result(DEADLINE_S)


@pytest.fixture
def pod(begun: tuple[str, Detached]) -> str:
    return begun[0]


@pytest.fixture
def left(begun: tuple[str, Detached]) -> Detached:
    return begun[1]


def tell(cluster: FakeCluster, pod: str, annotation: str, told: Any) -> None:
    cluster.patch("Pod", pod, {"annotations": {annotation: launcher_state.written(told)}})


def annotate(cluster: FakeCluster, pod: str, commands: PodCommands) -> None:
    cluster.patch("Pod", pod, {"annotations": {"launchpad/orders": commands.text()}})


def tell_end(cluster: FakeCluster, pod: str, *failures: Outcome, **states: list[str]) -> None:
    tell(cluster, pod, launcher_state.ENDED, asdict(ProgramEnded("left", failures, states=states)))


def kinds(cluster: FakeCluster) -> list[str]:
    return sorted(kind for kind, _ in cluster.objects)


def only(cluster: FakeCluster, kind: str) -> Manifest:
    (found,) = [each for (k, _), each in cluster.objects.items() if k == kind]
    return found


def requests(cluster: FakeCluster, pod: str) -> PodCommands:
    text: str = cluster.objects["Pod", pod]["metadata"]["annotations"]["launchpad/orders"]
    return pod_messages.parse_commands(text)


# What is made.


def test_a_supervisor_is_given_no_code_that_is_not_to_be_sent(cluster: FakeCluster) -> None:
    settings = replace(SETTINGS, send_code=False)
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        future = pool.submit(runs.launch, cluster, plan_of_two(), settings, 5.0)
        pod = cluster.pod(launcher_manifests.NAME)
        packed = base64.b64decode(
            only(cluster, "Secret")["data"][f"worker.{launcher_manifests.NAME}-000"]
        )
        cluster.end(pod, exit_code=1)

    assert isinstance(future.exception(DEADLINE_S), lp.LaunchError)
    assert pickle.loads(zlib.decompress(packed)).submitter.code == b""


def test_a_program_is_left_when_its_supervisor_says_that_it_has_launched(left: Detached) -> None:
    assert left.run_id == RECORD["run_id"]
    assert left.record.workers == {"loop-0": "loop", "loop-1": "loop"}
    assert not left.has_ended()


def test_a_supervisor_may_have_launched_before_its_kubelet_says_that_it_runs(
    cluster: FakeCluster, leave: Callable[[], Leaving]
) -> None:
    future = leave()
    pod = cluster.pod(launcher_manifests.NAME)
    tell(cluster, pod, launcher_state.LAUNCHED, RECORD)
    left = future.result(DEADLINE_S)

    assert not left.has_ended()
    left.ask_to_stop()

    assert requests(cluster, pod).stop


def test_all_that_was_made_goes_with_the_supervisors_job(
    cluster: FakeCluster, left: Detached
) -> None:
    made = ["Job", "Pod", "Role", "RoleBinding", "Secret", "ServiceAccount"]
    assert kinds(cluster) == made

    cluster.delete("Job", only(cluster, "Job")["metadata"]["name"])
    cluster.lose(only(cluster, "Pod")["metadata"]["name"])

    assert kinds(cluster) == []


def test_the_supervisor_alone_has_an_account_and_no_right_that_a_launch_does_not_take(
    cluster: FakeCluster, left: Detached
) -> None:
    spec = only(cluster, "Job")["spec"]["template"]["spec"]
    name = only(cluster, "ServiceAccount")["metadata"]["name"]
    assert (spec["serviceAccountName"], spec["automountServiceAccountToken"]) == (name, True)
    assert "affinity" not in spec

    rules = only(cluster, "Role")["rules"]
    given = {(v, r) for rule in rules for r in rule["resources"] for v in rule["verbs"]}
    allowed = (*permissions.RIGHTS, *permissions.USEFUL)  # which who leaves it must have, too
    assert given == {(v, _resource(kind)) for kind, verbs in allowed for v in verbs.split()}
    named = [rule["resourceNames"] for rule in rules if "resourceNames" in rule]
    assert named == [[name, name.removesuffix("-supervisor")]]


def _resource(kind: str) -> str:
    kind, _, part = kind.lower().partition("/")
    return f"{kind}s/{part}" if part else f"{kind}s"


def test_what_is_launched_travels_in_secrets_alone(cluster: FakeCluster, left: Detached) -> None:
    open_to_all = [each for (kind, _), each in cluster.objects.items() if kind != "Secret"]

    (content,) = (v for k, v in only(cluster, "Secret")["data"].items() if k.startswith("worker"))
    assert content not in json.dumps(open_to_all)


# What keeps it from being left.


def test_what_may_not_be_made_is_said_before_anything_is(
    cluster: FakeCluster, leave: Callable[[], Leaving]
) -> None:
    cluster.refused |= {("create", "Role"), ("patch", "Secret")}

    with pytest.raises(lp.LaunchError, match="you may not patch secrets, create roles"):
        leave().result(DEADLINE_S)
    assert kinds(cluster) == []


def test_a_supervisor_that_cannot_launch_says_why_and_nothing_is_left(
    cluster: FakeCluster, leave: Callable[[], Leaving]
) -> None:
    future = leave()
    pod = cluster.pod(launcher_manifests.NAME)
    cluster.run(pod)

    why = Outcome(launcher_manifests.NAME, FAILED, "start", cause="there is no disk")
    cluster.end(pod, exit_code=6, message=pod_messages.termination_message(why).decode())

    with pytest.raises(lp.LaunchError, match="could not launch: there is no disk"):
        future.result(DEADLINE_S)
    assert kinds(cluster) == []


def test_an_image_that_the_cluster_does_not_have_is_named_and_nothing_is_left(
    cluster: FakeCluster, leave: Callable[[], Leaving]
) -> None:
    future = leave()

    cluster.wait(cluster.pod(launcher_manifests.NAME), "ErrImageNeverPull", "image is not there")

    with pytest.raises(lp.LaunchError, match="ErrImageNeverPull: image is not there"):
        future.result(DEADLINE_S)
    assert kinds(cluster) == []


def test_an_image_without_launchpad_is_named_by_how_its_container_ends(
    cluster: FakeCluster, leave: Callable[[], Leaving]
) -> None:
    future = leave()

    cluster.end(cluster.pod(launcher_manifests.NAME), exit_code=1)

    with pytest.raises(lp.LaunchError, match="exited with code 1 without a word"):
        future.result(DEADLINE_S)


# While it runs, and afterwards.


def test_its_output_is_told_apart_by_worker(cluster: FakeCluster, pod: str, left: Detached) -> None:
    cluster.write(pod, "loop-0    | one | two", "loop-1    | other", "launchpad | ready", "odd")

    assert left.logs("loop-0") == "one | two\n"
    assert left.logs("loop-1", offset=3) == "er\n"


class Launcher:
    """In the place of the one in the launcher pod."""

    def stacks(self, workers: list[str]) -> dict[str, str]:
        return {worker: random.Random(0).randbytes(1_500_000).hex() for worker in workers}

    def ask_to_restart(self, worker: str) -> None:
        raise KeyError(f"there is no worker {worker!r}")


@pytest.fixture
def answered(cluster: FakeCluster, pod: str) -> Iterator[None]:
    """The next question is answered as the launcher pod does."""
    job = only(cluster, "Job")["metadata"]["name"]
    submitter = replace(Submitter.here(SETTINGS), run=job.removesuffix("-supervisor"))
    launcher_pod = LauncherPod(cluster, pod, LauncherSpec(plan_of_two(), SETTINGS, submitter))  # type: ignore[arg-type]
    launcher_pod.launcher = Launcher()  # type: ignore[assignment]
    launcher_pod._owner = Owner(job, cluster.objects["Secret", job]["metadata"]["uid"])

    def answer() -> None:
        question = cluster.when(lambda: requests(cluster, pod).question)
        launcher_pod._answer(**question)

    thread = threading.Thread(target=answer)
    thread.start()
    yield
    thread.join()


def test_its_supervisor_answers_with_more_than_one_secret_holds_and_none_is_left(
    cluster: FakeCluster, left: Detached, answered: None
) -> None:
    before = kinds(cluster)

    found = left.stacks(["loop-0", "loop-1"])

    assert [len(text) for text in found.values()] == [3_000_000] * 2
    assert kinds(cluster) == before


def test_what_its_supervisor_raises_is_raised_where_it_was_asked(
    cluster: FakeCluster, left: Detached, answered: None
) -> None:
    with pytest.raises(KeyError, match="no worker 'other-0'"):
        left.ask_to_restart("other-0")


def test_a_supervisor_that_does_not_answer_is_named(
    cluster: FakeCluster, pod: str, left: Detached
) -> None:
    with pytest.raises(lp.LaunchError, match="has not answered within"):
        left._ask("trace", 1.0, timeout_s=0.1)
    cluster.end(pod)
    with pytest.raises(lp.LaunchError, match="has ended"):
        left.metrics()


def test_a_failure_is_raised_as_it_would_be_by_a_launch(
    cluster: FakeCluster, pod: str, left: Detached
) -> None:
    tell_end(cluster, pod, FAILURE, failed=["loop-0"], stopped=["loop-1"])
    cluster.end(pod, exit_code=1)

    with pytest.raises(lp.ProgramFailed, match="on purpose") as failed:
        left.wait(DEADLINE_S)
    assert failed.value.outcome == FAILURE
    assert [(row.worker, row.state) for row in left.status()] == [
        ("loop-0", "failed"),
        ("loop-1", "stopped"),
    ]


def test_a_supervisor_that_was_lost_is_no_good_end(
    cluster: FakeCluster, pod: str, left: Detached
) -> None:
    cluster.evict(pod, "Evicted", "the node is full")

    with pytest.raises(lp.LaunchError, match=r"supervisor was lost.*Evicted: the node is full"):
        left.wait(DEADLINE_S)


def test_a_stop_is_the_supervisors_who_leaves_nothing_then(
    cluster: FakeCluster, pod: str, left: Detached
) -> None:
    left.ask_to_stop()
    assert requests(cluster, pod).stop
    assert not left.has_ended()

    left.ask_to_stop(at_once=True)
    assert requests(cluster, pod).kill
    tell_end(cluster, pod, stopped=["loop-0", "loop-1"])
    cluster.end(pod)
    left.wait(DEADLINE_S)

    assert kinds(cluster) == []


def test_a_run_whose_supervisor_was_lost_can_be_stopped_all_the_same(
    cluster: FakeCluster, pod: str, left: Detached
) -> None:
    cluster.evict(pod, "Evicted")

    left.stop()

    assert kinds(cluster) == []


def test_a_failure_is_not_forgotten_by_a_stop(
    cluster: FakeCluster, pod: str, left: Detached
) -> None:
    tell_end(cluster, pod, FAILURE, failed=["loop-0"])

    left.ask_to_stop()
    cluster.end(pod, exit_code=1)

    with pytest.raises(lp.ProgramFailed, match="on purpose"):
        left.wait(DEADLINE_S)
    assert kinds(cluster) == []


def test_a_failure_is_not_forgotten_by_a_stop_that_comes_late(
    cluster: FakeCluster, pod: str, left: Detached
) -> None:
    tell_end(cluster, pod, FAILURE, failed=["loop-0"])
    cluster.end(pod, exit_code=1)

    left.stop()

    with pytest.raises(lp.ProgramFailed, match="on purpose"):
        left.wait(DEADLINE_S)


def test_a_supervisor_that_could_not_tell_has_ended_as_its_pod_has(
    cluster: FakeCluster, pod: str, left: Detached
) -> None:
    cluster.end(pod)

    left.wait(DEADLINE_S)


def test_a_supervisor_that_launches_nothing_in_the_place_of_one_that_is_gone_says_why(
    cluster: FakeCluster, pod: str, left: Detached
) -> None:
    why = Outcome(launcher_manifests.NAME, FAILED, "start", cause="it was launched already")
    cluster.end(pod, exit_code=6, message=pod_messages.termination_message(why).decode())

    with pytest.raises(lp.LaunchError, match=r"^it was launched already$"):
        left.wait(DEADLINE_S)


def test_what_is_stopped_by_halves_is_stopped_by_the_next_look(
    cluster: FakeCluster, pod: str, left: Detached
) -> None:
    left.ask_to_stop()
    cluster.end(pod)
    cluster.is_reachable = False
    assert not left.has_ended()

    cluster.is_reachable = True
    left.stop()

    assert kinds(cluster) == []
    assert [row.state for row in left.status()] == ["stopped", "stopped"]


def test_a_script_that_waits_learns_that_another_has_stopped_it_and_nothing_worse(
    cluster: FakeCluster, pod: str, left: Detached
) -> None:
    annotate(cluster, pod, PodCommands(stop=True))
    assert not left.has_ended()

    cluster.delete("Job", only(cluster, "Job")["metadata"]["name"])
    cluster.lose(pod)

    left.wait(DEADLINE_S)


def test_a_stop_is_not_undone_by_who_asks(cluster: FakeCluster, pod: str, left: Detached) -> None:
    annotate(cluster, pod, PodCommands(stop=True, kill=True))

    with pytest.raises(lp.LaunchError, match="has not answered"):
        left._ask("trace", 1.0, timeout_s=0.1)

    sent = requests(cluster, pod)
    assert (sent.stop, sent.kill, sent.question["method"]) == (True, True, "trace")


def test_a_supervisor_that_does_not_stop_is_ended_by_force(
    cluster: FakeCluster, pod: str, left: Detached, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(detached_run, "_LAUNCHER_KILL_S", 0.1)
    monkeypatch.setattr(detached_run, "_ESCALATE_S", 0.1)

    left.stop(at_once=True)

    assert kinds(cluster) == []
    with pytest.raises(lp.LaunchError, match="did not end when it was told to"):
        left.wait(DEADLINE_S)


def test_a_cluster_that_is_away_for_a_moment_ends_no_waiting(
    cluster: FakeCluster, pod: str, left: Detached
) -> None:
    cluster.is_reachable = False
    assert not left.has_ended()

    cluster.is_reachable = True
    cluster.end(pod, exit_code=1)
    with pytest.raises(lp.LaunchError, match="supervisor was lost"):
        left.wait(DEADLINE_S)


def test_a_cluster_that_is_away_for_long_is_named(
    cluster: FakeCluster, pod: str, left: Detached, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client, "_UNREACHABLE_S", 0.1)
    cluster.is_reachable = False

    with pytest.raises(lp.LaunchError, match="does not answer"):
        left.wait(DEADLINE_S)


@pytest.mark.parametrize("workers", [2, 2000])
def test_how_it_has_ended_is_never_longer_than_an_annotation_may_be(workers: int) -> None:
    texts = ["".join(random.Random(0).choices("äöü" + string.printable, k=9000)) for _ in range(3)]
    long = Outcome("w-0", FAILED, "run", 9, texts[0], traceback=texts[1], earlier=(texts[2],))
    states = {"stopped": [f"w-{i}" for i in range(workers)]}

    text = launcher_state.written(asdict(ProgramEnded("long", (long,) * 9, texts[0], states)))

    assert len(text) <= launcher_state.MOST_BYTES
    told = launcher_state.ended_in({"metadata": {"annotations": {launcher_state.ENDED: text}}})
    assert told is not None
    assert told.failures[0].worker == "w-0"
    assert told.why
    assert told.states == states


def test_a_run_whose_supervisor_was_lost_is_found_and_stopped_from_elsewhere(
    cluster: FakeCluster, pod: str, left: Detached
) -> None:
    name = only(cluster, "Job")["metadata"]["name"]
    cluster.create(_root(cluster, name.removesuffix("-supervisor"), name))
    cluster.evict(pod, "Evicted")

    (found,) = runs.find(cluster)
    assert not found.has_ended()
    found.stop()

    assert kinds(cluster) == []


def test_it_is_found_from_elsewhere_by_the_root_that_its_supervisor_makes(
    cluster: FakeCluster, pod: str, left: Detached
) -> None:
    name = only(cluster, "Job")["metadata"]["name"]
    run = name.removesuffix("-supervisor")
    cluster.create(_root(cluster, run, name))

    (found,) = runs.find(cluster)
    found.ask_to_stop()

    assert found.record == RunRecord(**RECORD)
    assert requests(cluster, pod).stop


def _root(cluster: FakeCluster, run: str, owner: str) -> Manifest:
    uid = cluster.objects["Secret", owner]["metadata"]["uid"]
    labels: dict[str, Any] = {
        "app.kubernetes.io/managed-by": "launchpad",
        "launchpad/role": "root",
        "launchpad/run": run,
    }
    return {
        "kind": "Secret",
        "metadata": {
            "name": run,
            "labels": labels,
            "annotations": {"launchpad/record": json.dumps(RECORD)},
            "ownerReferences": [{"kind": "Secret", "name": owner, "uid": uid}],
        },
    }
