"""A program is left to a supervisor in the cluster; with a cluster that is not there."""

from __future__ import annotations

import concurrent.futures
import json
import random
import string
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, replace
from pathlib import Path
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
from launchpad.launch.backends.kubernetes.manifests import manifest
from launchpad.launch.backends.kubernetes.manifests.names import Owner
from launchpad.launch.backends.kubernetes.pod_messages import PodCommands
from launchpad.launch.backends.kubernetes.settings import Settings
from launchpad.launch.detached import Detached
from launchpad.launch.plan import LaunchPlan
from launchpad.launch.planning import planner
from launchpad.launch.rundir.record import RunRecord
from launchpad.outcome import FAILED, Outcome
from tests import nodes
from tests.kubernetes.fake_cluster import Account, FakeCluster

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

Happening = Callable[[FakeCluster, str], None]
Leave = Callable[[], "Leaving"]


def plan_of_two() -> LaunchPlan:
    program = lp.Program("left")
    with program.group("loop"):
        for _ in range(2):
            program.add_node(lp.PyClassNode(nodes.Loop))
    return planner.plan(program, TestKubernetes(image="image"), "kubernetes")


class Leaving:
    """A program of two workers, left there in a thread: the test is the cluster meanwhile."""

    def __init__(
        self,
        cluster: FakeCluster,
        pool: concurrent.futures.Executor,
        account: Account | None = None,
    ) -> None:
        self.cluster = cluster
        self._future = pool.submit(runs.launch, account or cluster, plan_of_two(), SETTINGS, 5.0)

    @property
    def pod(self) -> str:
        """That of its supervisor."""
        return self.cluster.pod(launcher_manifests.NAME)

    def result(self) -> Detached:
        return self._future.result(DEADLINE_S)

    def tell(self, annotation: str, told: Any) -> None:
        annotations = {annotation: launcher_state.written(told)}
        self.cluster.patch("Pod", self.pod, {"annotations": annotations})

    def tell_end(self, *failures: Outcome, exit_code: int = 0, **states: list[str]) -> None:
        """The supervisor says how the program has ended, and ends."""
        self.tell(launcher_state.ENDED, asdict(ProgramEnded("left", failures, states=states)))
        self.cluster.end(self.pod, exit_code)

    def annotate(self, commands: PodCommands) -> None:
        """Somebody else gives these commands."""
        annotations = {"launchpad/orders": commands.text()}
        self.cluster.patch("Pod", self.pod, {"annotations": annotations})

    def launcher_pod(self, cluster: FakeCluster | Account) -> LauncherPod:
        """The supervisor, as far as a test has it do anything."""
        job = self.only("Job")["metadata"]["name"]
        submitter = replace(Submitter.here(SETTINGS), run=job.removesuffix("-supervisor"))
        spec = LauncherSpec(plan_of_two(), SETTINGS, submitter)
        return LauncherPod(cluster, self.pod, spec)  # type: ignore[arg-type]

    @property
    def commands(self) -> PodCommands:
        metadata = self.cluster.objects["Pod", self.pod]["metadata"]
        return pod_messages.parse_commands(metadata["annotations"]["launchpad/orders"])

    @property
    def kinds(self) -> list[str]:
        """Of what is there."""
        return sorted(kind for kind, _ in self.cluster.objects)

    def only(self, kind: str) -> Manifest:
        (found,) = [each for (k, _), each in self.cluster.objects.items() if k == kind]
        return found


@pytest.fixture
def leave(cluster: FakeCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Leave]:
    # The code of the folder is sent. All that tests import from this checkout takes several Secrets.
    monkeypatch.chdir(tmp_path)
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        yield lambda: Leaving(cluster, pool)


@pytest.fixture
def there(leave: Leave) -> Leaving:
    """It has been launched."""
    there = leave()
    there.cluster.run(there.pod)
    there.tell(launcher_state.LAUNCHED, RECORD)
    return there


@pytest.fixture
def left(there: Leaving) -> Detached:
    """What the script has of it."""
    return there.result()


# What is made.


def test_a_program_is_left_as_soon_as_it_is_launched(leave: Leave) -> None:
    leaving = leave()
    leaving.tell(launcher_state.LAUNCHED, RECORD)  # before its kubelet says that it runs
    left = leaving.result()

    assert left.run_id == RECORD["run_id"]
    assert left.record.workers == {"loop-0": "loop", "loop-1": "loop"}
    assert not left.has_ended()
    left.ask_to_stop()
    assert leaving.commands.stop


def test_what_was_made_goes_with_the_job_and_code_was_in_secrets_alone(
    there: Leaving, left: Detached
) -> None:
    supervisor = ["ConfigMap", "Job", "Pod", "Role", "RoleBinding", "Secret", "ServiceAccount"]
    assert there.kinds == supervisor
    open_to_all = [each for (kind, _), each in there.cluster.objects.items() if kind != "Secret"]
    (content,) = (v for k, v in there.only("Secret")["data"].items() if k.startswith("worker"))
    assert content not in json.dumps(open_to_all)

    there.cluster.delete("Job", there.only("Job")["metadata"]["name"])
    there.cluster.lose(there.pod)

    assert there.kinds == []


def test_the_supervisor_alone_has_an_account_with_the_rights_of_a_launch(
    there: Leaving, left: Detached
) -> None:
    spec = there.only("Job")["spec"]["template"]["spec"]
    name = there.only("ServiceAccount")["metadata"]["name"]
    assert (spec["serviceAccountName"], spec["automountServiceAccountToken"]) == (name, True)
    assert "affinity" not in spec

    rules = there.only("Role")["rules"]
    given = {(v, r) for rule in rules for r in rule["resources"] for v in rule["verbs"]}
    allowed = (*permissions.RIGHTS, *permissions.USEFUL)  # which who leaves it must have, too
    assert given == {
        (verb, client.resource_of(kind)[1]) for kind, verbs in allowed for verb in verbs.split()
    }
    named = [rule["resourceNames"] for rule in rules if "resourceNames" in rule]
    assert named == [[name, name.removesuffix("-supervisor")]]


# What keeps it from being left.


def test_what_may_not_be_made_is_said_first(cluster: FakeCluster, leave: Leave) -> None:
    cluster.refused |= {("create", "Role"), ("patch", "ConfigMap")}

    with pytest.raises(lp.LaunchError, match="you may not patch configmaps, create roles"):
        leave().result()
    assert cluster.objects == {}


def last_words(why: str) -> dict[str, Any]:
    """How the container of a supervisor ends that has launched nothing."""
    ended = Outcome(launcher_manifests.NAME, FAILED, "start", cause=why)
    return {"exit_code": 6, "message": pod_messages.termination_message(ended).decode()}


@pytest.mark.parametrize(
    ("happens", "why"),
    [
        (lambda c, pod: c.end(pod, **last_words("no disk")), "could not launch: no disk"),
        (lambda c, pod: c.end(pod, exit_code=1), "exited with code 1 without a word"),
        (lambda c, pod: c.wait(pod, "ErrImageNeverPull", "none"), "ErrImageNeverPull: none"),
    ],
)
def test_a_supervisor_that_cannot_launch_is_named_and_leaves_nothing(
    leave: Leave, happens: Happening, why: str
) -> None:
    leaving = leave()

    happens(leaving.cluster, leaving.pod)

    with pytest.raises(lp.LaunchError, match=why):
        leaving.result()
    assert leaving.kinds == []


def test_a_supervisor_that_a_quota_never_takes_is_not_waited_for(
    cluster: FakeCluster, leave: Leave, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runs, "_NO_POD_S", 0.05)
    cluster.no_pods = "failed quota: q: must specify limits.cpu,limits.memory"

    with pytest.raises(
        lp.LaunchError, match=r"makes no pod for it: FailedCreate: failed quota: q: .* set default_"
    ):
        leave().result()
    assert cluster.objects == {}


# While it runs, and afterwards.


def test_its_output_is_told_apart_by_worker(there: Leaving, left: Detached) -> None:
    lines = ["loop-0    | one | two", "loop-1    | other", "launchpad | ready", "odd"]
    there.cluster.write(there.pod, *lines)

    assert left.logs("loop-0") == "one | two\n"
    assert left.logs("loop-1", offset=3) == "er\n"


class Launcher:
    """In the place of the one in the launcher pod."""

    def stacks(self, workers: list[str]) -> dict[str, str]:
        return {worker: random.Random(0).randbytes(1_500_000).hex() for worker in workers}

    def ask_to_restart(self, worker: str) -> None:
        raise KeyError(f"there is no worker {worker!r}")


@contextmanager
def answering(there: Leaving) -> Iterator[None]:
    """Its next question is answered as the launcher pod does, for a block."""
    launcher_pod = there.launcher_pod(there.cluster)
    launcher_pod.launcher = Launcher()  # type: ignore[assignment]
    launcher_pod._owner = launcher_pod._own()

    def answer() -> None:
        question = there.cluster.when(lambda: there.commands.question)
        launcher_pod._answer(**question)

    thread = threading.Thread(target=answer)
    thread.start()
    yield
    thread.join()


@pytest.fixture
def answers(there: Leaving, left: Detached) -> Iterator[Detached]:
    with answering(there):
        yield left


def test_answers_of_its_supervisor_may_be_larger_than_a_secret_and_none_is_left(
    there: Leaving, answers: Detached
) -> None:
    before = there.kinds

    found = answers.stacks(["loop-0", "loop-1"])

    assert [len(text) for text in found.values()] == [3_000_000] * 2
    assert there.kinds == before


def test_what_its_supervisor_raises_is_raised_where_it_was_asked(answers: Detached) -> None:
    with pytest.raises(KeyError, match="no worker 'other-0'"):
        answers.ask_to_restart("other-0")


def test_a_supervisor_that_does_not_answer_is_named(there: Leaving, left: Detached) -> None:
    with pytest.raises(lp.LaunchError, match="has not answered within"):
        left._ask("trace", 1.0, timeout_s=0.1)
    there.cluster.end(there.pod)
    with pytest.raises(lp.LaunchError, match="has ended"):
        left.metrics()


def test_a_failure_is_raised_as_it_would_be_by_a_launch(there: Leaving, left: Detached) -> None:
    there.tell_end(FAILURE, exit_code=1, failed=["loop-0"], stopped=["loop-1"])

    with pytest.raises(lp.ProgramFailed, match="on purpose") as failed:
        left.wait(DEADLINE_S)
    assert failed.value.outcome == FAILURE
    states = {row.worker: row.state for row in left.status()}
    assert states == {"loop-0": "failed", "loop-1": "stopped"}


@pytest.mark.parametrize(
    ("happens", "why"),
    [
        (lambda c, pod: c.evict(pod, "Evicted", "full"), r"supervisor was lost.*Evicted: full"),
        (lambda c, pod: c.end(pod, **last_words("launched already")), r"^launched already$"),
    ],
)
def test_a_supervisor_that_was_lost_is_no_good_end_and_its_run_can_be_stopped(
    there: Leaving, left: Detached, happens: Happening, why: str
) -> None:
    happens(there.cluster, there.pod)

    with pytest.raises(lp.LaunchError, match=why):
        left.wait(DEADLINE_S)
    left.stop()

    assert there.kinds == []


@pytest.fixture
def replaced(there: Leaving, left: Detached) -> LauncherPod:
    """The second pod of a supervisor, whose first is being deleted; and its program has a worker."""
    first = there.launcher_pod(there.cluster)
    owner = first._own()
    run = replace(launcher_manifests.run_of(first._spec, {}), name=first._spec.submitter.run)
    root = there.cluster.create(manifest.root(replace(run, owner=owner)))
    owner = Owner(run.name, root["metadata"]["uid"])
    there.cluster.create(manifest.job(replace(run, owner=owner), first._spec.plan.workers[0], 1))
    there.cluster.delete("Pod", there.pod)
    return LauncherPod(there.cluster, "another", first._spec)  # type: ignore[arg-type]


LOST = r"supervisor of left-\w+ is gone: .* Another .* so the program was ended\. Launch it again"


def test_a_supervisor_whose_pod_is_replaced_ends_the_program_and_says_so(
    there: Leaving, replaced: LauncherPod
) -> None:
    there.cluster.lose(there.pod)

    with pytest.raises(lp.LaunchError, match=LOST):
        replaced._own()

    labels = [each["metadata"].get("labels", {}) for each in there.cluster.objects.values()]
    assert {each["launchpad/run"] for each in labels} == {replaced._object_name}


def test_a_supervisor_that_is_being_deleted_may_stop_its_program_before_another_ends_it(
    there: Leaving, replaced: LauncherPod, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks = threading.Semaphore(0)
    monkeypatch.setattr(replaced._is_terminated, "wait", lambda seconds: looks.release())

    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        owning = pool.submit(replaced._own)
        for _ in range(3):
            assert looks.acquire(timeout=DEADLINE_S)
        is_there = ("ConfigMap", replaced._spec.submitter.run) in there.cluster.objects
        there.cluster.end(there.pod)

        with pytest.raises(lp.LaunchError, match=LOST):
            owning.result(DEADLINE_S)
    assert is_there
    assert ("ConfigMap", replaced._spec.submitter.run) not in there.cluster.objects


def test_a_supervisor_on_a_dead_node_is_waited_for_as_long_as_it_may_take_to_stop(
    there: Leaving, replaced: LauncherPod, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(launcher_manifests, "_GRACE_S", -1000.0)

    with pytest.raises(lp.LaunchError, match=LOST):
        replaced._own()

    assert there.pod
    assert ("ConfigMap", replaced._spec.submitter.run) not in there.cluster.objects


def test_the_words_of_the_next_supervisor_are_waited_for_when_one_is_gone(
    there: Leaving, left: Detached
) -> None:
    other = there.cluster.read("Pod", there.pod)
    other["metadata"] |= {"name": "another", "annotations": {}}
    there.cluster.lose(there.pod)
    assert not left.has_ended()

    there.cluster.create(other)
    assert not left.has_ended()
    there.cluster.end("another", **last_words("the program was ended"))

    with pytest.raises(lp.LaunchError, match=r"^the program was ended$"):
        left.wait(DEADLINE_S)


def test_the_words_of_the_next_supervisor_count_when_a_dead_node_keeps_the_first(
    there: Leaving, left: Detached
) -> None:
    first = there.pod
    other = there.cluster.read("Pod", first)
    other["metadata"] |= {"name": "another", "annotations": {}, "creationTimestamp": "later"}
    there.cluster.delete("Pod", first)
    there.cluster.create(other)
    assert not left.has_ended()

    there.cluster.end("another", **last_words("the program was ended"))

    with pytest.raises(lp.LaunchError, match=r"^the program was ended$"):
        left.wait(DEADLINE_S)
    assert ("Pod", first) in there.cluster.objects


@pytest.mark.parametrize("has_job", [True, False])
def test_a_supervisor_that_is_gone_and_that_no_other_follows_is_not_waited_for_long(
    there: Leaving, left: Detached, monkeypatch: pytest.MonkeyPatch, has_job: bool
) -> None:
    monkeypatch.setattr(detached_run, "_REPLACED_S", 0.1 if has_job else 1000.0)
    there.cluster.lose(there.pod)
    if not has_job:
        there.cluster.delete("Job", there.only("Job")["metadata"]["name"])

    with pytest.raises(lp.LaunchError, match="it is unknown how the program has ended"):
        left.wait(DEADLINE_S)


def test_a_supervisor_that_is_started_twice_leaves_the_program_to_the_other_pod(
    there: Leaving, left: Detached, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = there.launcher_pod(there.cluster)
    first._own()
    second = LauncherPod(there.cluster, "another", first._spec)  # type: ignore[arg-type]
    monkeypatch.setattr(launcher_manifests, "_GRACE_S", -1000.0)  # its time to stop is long over
    waits = iter([False, False, True])
    monkeypatch.setattr(second._is_terminated, "wait", lambda seconds: next(waits))
    monkeypatch.setattr(there.cluster, "delete", None)

    with pytest.raises(lp.LaunchError, match="is supervised by another pod"):
        second._own()
    monkeypatch.undo()


def test_a_supervisor_is_replaced_whose_node_is_drained_or_dies(
    there: Leaving, left: Detached
) -> None:
    spec = there.only("Job")["spec"]

    (rule,) = spec["podFailurePolicy"]["rules"]
    assert rule["action"] == "Ignore"
    assert rule["onPodConditions"] == [{"type": "DisruptionTarget", "status": "True"}]
    assert spec["template"]["spec"]["restartPolicy"] == "Never"  # or the rule would be refused


def test_a_supervisor_that_could_not_tell_has_ended_as_its_pod(
    there: Leaving, left: Detached
) -> None:
    there.cluster.end(there.pod)

    left.wait(DEADLINE_S)


def test_a_stop_is_the_supervisors_who_leaves_nothing_then(there: Leaving, left: Detached) -> None:
    left.ask_to_stop()
    assert there.commands.stop
    assert not left.has_ended()

    left.ask_to_stop(at_once=True)
    assert there.commands.kill
    there.tell_end(stopped=["loop-0", "loop-1"])
    left.wait(DEADLINE_S)

    assert there.kinds == []


@pytest.mark.parametrize("is_late", [False, True])
def test_a_failure_is_not_forgotten_by_a_stop(
    there: Leaving, left: Detached, is_late: bool
) -> None:
    if not is_late:
        left.ask_to_stop()
    there.tell_end(FAILURE, exit_code=1, failed=["loop-0"])
    if is_late:
        left.stop()

    with pytest.raises(lp.ProgramFailed, match="on purpose"):
        left.wait(DEADLINE_S)
    assert there.kinds == []


def test_what_is_stopped_by_halves_is_stopped_by_the_next_look(
    there: Leaving, left: Detached
) -> None:
    left.ask_to_stop()
    there.cluster.end(there.pod)
    there.cluster.is_reachable = False
    assert not left.has_ended()

    there.cluster.is_reachable = True
    left.stop()

    assert there.kinds == []
    assert [row.state for row in left.status()] == ["stopped", "stopped"]


def test_a_stop_by_another_ends_the_wait_of_a_script_well(there: Leaving, left: Detached) -> None:
    there.annotate(PodCommands(stop=True))
    assert not left.has_ended()

    pod = there.pod
    there.cluster.delete("Job", there.only("Job")["metadata"]["name"])
    there.cluster.lose(pod)

    left.wait(DEADLINE_S)


def test_a_stop_is_not_undone_by_who_asks(there: Leaving, left: Detached) -> None:
    there.annotate(PodCommands(stop=True, kill=True))

    with pytest.raises(lp.LaunchError, match="has not answered"):
        left._ask("trace", 1.0, timeout_s=0.1)

    sent = there.commands
    assert (sent.stop, sent.kill, sent.question["method"]) == (True, True, "trace")


def test_a_supervisor_that_does_not_stop_is_ended_by_force(
    there: Leaving, left: Detached, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(detached_run, "_LAUNCHER_KILL_S", 0.1)
    monkeypatch.setattr(detached_run, "_ESCALATE_S", 0.1)

    left.stop(at_once=True)

    assert there.kinds == []
    with pytest.raises(lp.LaunchError, match="did not end when it was told to"):
        left.wait(DEADLINE_S)


def test_a_cluster_that_is_away_for_long_is_named(
    there: Leaving, left: Detached, monkeypatch: pytest.MonkeyPatch
) -> None:
    there.cluster.is_reachable = False
    assert not left.has_ended()

    monkeypatch.setattr(client, "_UNREACHABLE_S", 0.1)
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


@pytest.mark.parametrize("is_lost", [False, True])
def test_it_is_found_by_its_root_from_elsewhere_and_stopped(
    there: Leaving, left: Detached, is_lost: bool
) -> None:
    owner = there.only("Job")["metadata"]["name"]
    run = owner.removesuffix("-supervisor")
    uid = there.cluster.objects["ConfigMap", owner]["metadata"]["uid"]
    metadata = {
        "name": run,
        "labels": {
            "app.kubernetes.io/managed-by": "launchpad",
            "launchpad/role": "root",
            "launchpad/run": run,
        },
        "ownerReferences": [{"kind": "ConfigMap", "name": owner, "uid": uid}],
    }
    data = {"record": json.dumps(RECORD)}
    there.cluster.create({"kind": "ConfigMap", "metadata": metadata, "data": data})
    if is_lost:
        there.cluster.evict(there.pod, "Evicted")

    (found,) = runs.find(there.cluster)
    assert found.record == RunRecord(**RECORD)
    assert not found.has_ended()
    if is_lost:
        found.stop()
        assert there.kinds == []
    else:
        found.ask_to_stop()
        assert there.commands.stop
