"""What a launch does about what happens in a cluster; with one that shows it on demand."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

import launchpad as lp
from launchpad import outcome
from launchpad.launch.backends.backend import Workers
from launchpad.launch.backends.kubernetes import (
    missing_pods,
    pod_messages,
    pod_status,
    pod_workers,
    termination,
)
from launchpad.launch.backends.kubernetes.backend import TestKubernetes
from launchpad.launch.backends.kubernetes.pod_inputs import archives
from launchpad.launch.backends.kubernetes.pod_workers import KubernetesWorkers
from launchpad.launch.output.printer import Output
from launchpad.launch.plan import LaunchPlan
from launchpad.launch.planning import planner
from launchpad.launch.rundir.directory import RunDirectory
from launchpad.launch.running import Running
from launchpad.outcome import Outcome
from launchpad.runtime import results
from launchpad.runtime.events import Done, Ended, Event, Ready, StopRequested, WorkerNote
from tests import nodes
from tests.kubernetes.fake_cluster import Account, FakeCluster
from tests.waiting import until

SUCCEEDED = Outcome("loop-0", outcome.SUCCEEDED)
RESTARTS = lp.RestartPolicy(max_restarts=3, backoff=0.0)


@pytest.fixture(autouse=True)
def nothing_more_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pod_workers, "_LOG_S", 0.2)  # of the log of a pod that is lost


class OnFake(TestKubernetes):
    """The backend, on a cluster that is not there."""

    __test__ = False

    def __init__(self, cluster: FakeCluster | Account, **options: Any) -> None:
        super().__init__(image="image", **options)
        self._cluster = cluster

    def create_workers(
        self, plan: LaunchPlan, run: RunDirectory, report: Callable[[Event], None]
    ) -> Workers:
        return KubernetesWorkers(plan, run, report, self._settings, self._cluster, self.submitter)


@contextmanager
def launched(
    cluster: FakeCluster,
    program: lp.Program | None = None,
    backend: OnFake | None = None,
    **options: Any,
) -> Iterator[Running]:
    backend = backend or OnFake(cluster, **options)
    plan = planner.plan(program or program_of(), backend, "test_kubernetes")
    run = RunDirectory.create(plan.program)
    output = Output(run, [worker.name for worker in plan.workers], None)
    running = Running.start(plan, backend, run, output, 1.0)
    try:
        yield running
    finally:
        ending = threading.Thread(target=running.stop, kwargs={"at_once": True})
        ending.start()
        while ending.is_alive():
            cluster.lose_pods()
            ending.join(0.05)


def program_of(restart: lp.RestartPolicy | None = None) -> lp.Program:
    program = lp.Program("fake")
    with program.group("loop", restart=restart):
        program.add_node(lp.PyClassNode(nodes.Loop))
    return program


class Loop:
    """A program of one worker, which runs."""

    def __init__(self, cluster: FakeCluster, running: Running) -> None:
        self.cluster = cluster
        self.running = running
        self.pod = begin(cluster)
        until(lambda: running.status()[0].state == "running")

    def report(self, *reports: Event | pod_messages.Chunk) -> None:
        """Its pod reports these."""
        for report in reports:
            self.cluster.report(self.pod, report)

    def end(self, exit_code: int = 0, reason: str = "") -> None:
        """So does its container end."""
        self.cluster.end(self.pod, exit_code, reason)


@pytest.fixture
def loop(cluster: FakeCluster) -> Iterator[Loop]:
    with launched(cluster) as running:
        yield Loop(cluster, running)


def begin(cluster: FakeCluster, worker: str = "loop-0", attempt: int = 1) -> str:
    """Has the worker's pod run, and be ready."""
    pod = cluster.pod(worker, attempt)
    cluster.run(pod)
    cluster.report(pod, Ready(worker, attempt, runs=True))
    return pod


def test_a_program_ends_well_with_each_line_once_over_a_bad_network(loop: Loop) -> None:
    loop.cluster.write(loop.pod, "one", "two")
    until(lambda: loop.running.logs("loop") == "one\ntwo\n")
    loop.cluster.is_reachable = False
    time.sleep(0.3)
    loop.cluster.write(loop.pod, "three")
    loop.cluster.is_reachable = True
    loop.report(Ended(SUCCEEDED))
    loop.end()
    loop.running.wait(20)

    assert loop.running.logs("loop") == "one\ntwo\nthree\n"
    until(lambda: loop.cluster.objects == {})


def test_a_worker_that_fails_is_started_again_as_a_new_job(cluster: FakeCluster) -> None:
    with launched(cluster, program_of(RESTARTS)) as running:
        pod = begin(cluster)
        cluster.end(pod, exit_code=137)
        again = begin(cluster, attempt=2)
        until(lambda: (running.status()[0].state, running.status()[0].attempt) == ("running", 2))
        assert again != pod
        jobs = [name for kind, name in cluster.objects if kind == "Job"]
        assert [name.rpartition("-")[2] for name in jobs] == ["2"]

        late = Outcome("loop-0", outcome.SUCCEEDED, attempt=1)
        cluster.write(pod, pod_messages.written(Ended(late)).decode())
        time.sleep(0.3)

        assert running.status()[0].state == "running"


@pytest.mark.parametrize(
    ("happens", "cause"),
    [
        (lambda c, pod: c.lose(pod), "its pod was deleted, and not by us"),
        (lambda c, pod: c.evict(pod, "Evicted", "low on memory"), "Evicted: low on memory"),
        (lambda c, pod: c.end(pod, 3), "exited with code 3"),
    ],
)
@pytest.mark.parametrize("is_watched", [True, False])
def test_an_end_that_only_the_cluster_knows_of_is_named_also_if_the_watch_was_down_meanwhile(
    loop: Loop,
    happens: Callable[[FakeCluster, str], None],
    cause: str,
    is_watched: bool,
) -> None:
    if is_watched:
        happens(loop.cluster, loop.pod)
    else:
        loop.cluster.is_reachable = False
        time.sleep(0.3)
        happens(loop.cluster, loop.pod)
        loop.cluster.forget()
        loop.cluster.is_reachable = True

    with pytest.raises(lp.ProgramFailed) as caught:
        loop.running.wait(20)
    assert cause in str(caught.value)
    assert "attempt 1" in str(caught.value)


@pytest.mark.parametrize(
    ("happens", "pending_timeout_s", "cause"),
    [
        (
            lambda c, pod: c.refuse_to_place(pod, "0/3 nodes are available: 3 Insufficient cpu."),
            0.5,
            "Unschedulable: 0/3 nodes are available",
        ),
        (
            lambda c, pod: c.wait(pod, "ErrImageNeverPull", "image is not present"),
            600,  # it will never be there, and is not waited for
            "ErrImageNeverPull: image is not present",
        ),
    ],
)
def test_a_pod_that_does_not_begin_fails_in_the_words_of_the_cluster(
    cluster: FakeCluster,
    happens: Callable[[FakeCluster, str], None],
    pending_timeout_s: float,
    cause: str,
) -> None:
    with launched(cluster, pending_timeout_s=pending_timeout_s) as running:
        happens(cluster, cluster.pod("loop-0"))

        with pytest.raises(lp.ProgramFailed, match=cause):
            running.wait(20)


QUOTA = 'pods "fake-1-loop-0-1-x" is forbidden: '
UNSPECIFIED = (
    QUOTA + "failed quota: q: must specify limits.cpu for: worker; limits.memory for: worker"
)
EXCEEDED = (
    QUOTA + "exceeded quota: q, requested: limits.cpu=8, used: limits.cpu=0, limited: limits.cpu=4"
)


@pytest.mark.parametrize(
    ("refusal", "pending_timeout_s", "cause", "hint"),
    [
        # However long one waits, such a quota takes no such pod.
        (UNSPECIFIED, 600, "makes no pod for it: FailedCreate: pods ", "set default_resources={"),
        (
            EXCEEDED,
            0.5,
            "made no pod for it in 0.5 s: FailedCreate: pods ",
            "or default_resources,",
        ),
    ],
)
def test_where_a_quota_refuses_a_pod_the_setting_for_it_is_named(
    cluster: FakeCluster,
    monkeypatch: pytest.MonkeyPatch,
    refusal: str,
    pending_timeout_s: float,
    cause: str,
    hint: str,
) -> None:
    monkeypatch.setattr(missing_pods, "_NO_POD_S", 0.1)
    cluster.no_pods = refusal
    with launched(cluster, pending_timeout_s=pending_timeout_s) as running:
        with pytest.raises(lp.ProgramFailed, match=cause) as refused:
            running.wait(20)

        assert refusal.removeprefix(QUOTA) in str(refused.value)
        assert hint in str(refused.value)


def test_who_finds_no_place_is_told_what_it_gets_by_default(cluster: FakeCluster) -> None:
    defaults = {"cpu": "64", "memory": "1Gi"}
    with launched(cluster, default_resources=defaults, pending_timeout_s=0.5) as running:
        cluster.refuse_to_place(cluster.pod("loop-0"), "0/3 nodes: 3 Insufficient cpu.")

        with pytest.raises(
            lp.ProgramFailed,
            match="asks for nothing itself, and by default_resources for cpu=64, memory=1Gi",
        ):
            running.wait(20)


@pytest.mark.parametrize(
    "message",
    [
        'Usage of EmptyDir volume "tmp" exceeds the limit "10Gi".',
        "Pod ephemeral local storage usage exceeds the total limit of containers 2Gi.",
    ],
)
def test_who_is_evicted_because_it_wrote_too_much_is_told_how_to_get_more(
    loop: Loop, message: str
) -> None:
    loop.cluster.evict(loop.pod, "Evicted", message)

    with pytest.raises(
        lp.ProgramFailed, match=r"set default_resources=\{'ephemeral-storage'"
    ) as end:
        loop.running.wait(20)
    assert message in str(end.value)


def test_a_worker_that_asks_for_it_stops_the_program(loop: Loop) -> None:
    loop.report(StopRequested("loop-0"))
    loop.cluster.when(
        lambda: "deletionTimestamp" in loop.cluster.objects["Pod", loop.pod]["metadata"]
    )
    loop.report(Ended(Outcome("loop-0", outcome.STOPPED)))
    loop.end()

    loop.running.wait(20)


def test_all_rights_that_lack_are_named_before_anything_is_made(cluster: FakeCluster) -> None:
    cluster.refused = {("create", "Job"), ("get", "Pod/log")}

    with (
        pytest.raises(lp.LaunchError, match="you may not create jobs, get pod/logs"),
        launched(cluster),
    ):
        raise AssertionError("it was launched")
    assert cluster.objects == {}


def test_a_worker_learns_that_another_one_is_gone(cluster: FakeCluster) -> None:
    program = lp.Program("two")
    program.add_node(lp.CourierNode(nodes.ServesBriefly), label="server")
    program.add_node(lp.PyClassNode(nodes.Loop), label="loop")
    with launched(cluster, program):
        first, pod = begin(cluster, "server-0"), begin(cluster)
        cluster.report(first, Ended(Outcome("server-0", outcome.SUCCEEDED)))
        cluster.end(first)

        until(lambda: "server-0" in commands_of(cluster, pod).gone)
        assert "it has ended and serves no more" in commands_of(cluster, pod).gone["server-0"]


def test_what_an_attempt_left_is_kept_and_given_on(cluster: FakeCluster, tmp_path: Path) -> None:
    (tmp_path / "notes").write_text("attempt 1")
    failed = Outcome("loop-0", outcome.FAILED, cause="ValueError: boom")
    with launched(cluster, program_of(RESTARTS)) as running:
        pod = begin(cluster)
        for piece in pod_messages.chunks(pod_messages.STATE, archives.packed(tmp_path)):
            cluster.report(pod, piece)
        cluster.report(pod, Ended(failed))
        cluster.end(pod, exit_code=1)
        again = begin(cluster, attempt=2)

        given = cluster.objects["Pod", again]["spec"]["volumes"][0]["projected"]["sources"]
        names = [each["secret"]["name"] for each in given if "secret" in each]
        assert names[-1].endswith("-loop-0-2-state-000")
        assert ("Secret", names[-1]) in cluster.objects
        kept = running.log_directory / "state" / "loop-0" / "notes"
        assert kept.read_text() == "attempt 1"


# --- results and numbers of edges, which come in several lines ------------------------------------


def result_chunks(value: object) -> list[pod_messages.Chunk]:
    returned = results.returned("loop-0", 1, value)
    assert returned is not None
    return pod_messages.event_chunks(returned)


LARGE = random.Random(1).randbytes(20_000)


@pytest.mark.parametrize(("lost", "goes_on"), [(0, True), (3, False), (-1, False)])
def test_a_result_that_lost_a_line_is_an_error(loop: Loop, lost: int, goes_on: bool) -> None:
    chunks = result_chunks(LARGE)
    sent = [chunk for chunk in chunks if chunk is not chunks[lost]]
    loop.report(*sent)
    if goes_on:
        loop.report(Done("loop-0", 1))
    else:
        loop.report(Ended(SUCCEEDED))
        loop.end()

    with pytest.raises(
        lp.ResultError, match=f"of what loop-0 returned, {len(sent)} of {len(chunks)} lines"
    ):
        loop.running.results("loop", 20)


def test_a_result_is_whole_though_lines_come_twice_and_others_broken(loop: Loop) -> None:
    chunks = result_chunks(LARGE)
    broken = pod_messages.Chunk(pod_messages.EDGES, 0, 1, "AAAA")
    loop.report(*chunks[:3], *chunks[:2], chunks[2], *chunks[1:], *chunks[:2], broken)
    loop.report(Ended(SUCCEEDED))
    loop.end()

    assert loop.running.results("loop", 20) == [LARGE]


def test_a_worker_that_is_too_slow_to_start_is_ended_by_its_pod(cluster: FakeCluster) -> None:
    policy = lp.RestartPolicy(max_restarts=0, start_timeout_s=0.5)
    with launched(cluster, program_of(policy)) as running:
        pod = cluster.pod("loop-0")
        cluster.run(pod)
        until(lambda: commands_of(cluster, pod).kill)
        stopped = Outcome("loop-0", outcome.STOPPED, "init", cause="killed when it did not stop")
        cluster.report(pod, Ended(stopped))
        cluster.end(pod)

        with pytest.raises(lp.ProgramFailed, match=r"was not ready within start_timeout_s=0\.5"):
            running.wait(20)


def test_a_launcher_that_fails_itself_gives_up_all_its_workers(
    loop: Loop, monkeypatch: pytest.MonkeyPatch
) -> None:
    def raises(*_: object) -> str:
        raise AttributeError("a mistake of ours")

    monkeypatch.setattr(pod_status, "ending", raises)
    loop.end(exit_code=1)

    with pytest.raises(lp.ProgramFailed, match="cannot go on: AttributeError: a mistake of ours"):
        loop.running.wait(20)


def test_a_cluster_that_does_not_answer_does_not_keep_a_program_from_stopping(
    cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(termination, "_ABANDONED_S", 0.5)
    with launched(cluster) as running:
        begin(cluster)
        until(lambda: running.status()[0].state == "running")
        cluster.is_reachable = False

        running.stop(at_once=True)

        assert running.status()[0].state == "lost"
        cluster.is_reachable = True


# --- who has the last word ------------------------------------------------------------------------


def test_a_worker_has_ended_when_it_says_so_however_late_a_kubelet_is(loop: Loop) -> None:
    loop.report(Ended(SUCCEEDED))  # and the pod goes on running, as far as we are told
    loop.running.wait(20)

    assert loop.running.status()[0].state == "succeeded"
    until(lambda: loop.cluster.objects == {})


def test_whether_sigkill_was_for_want_of_memory_the_cluster_says(loop: Loop) -> None:
    killed = Outcome("loop-0", outcome.FAILED, "run", 1, "killed by SIGKILL", signal="SIGKILL")
    loop.report(Ended(killed))
    loop.end(exit_code=1, reason="OOMKilled")
    with pytest.raises(lp.ProgramFailed, match="out of memory"):
        loop.running.wait(20)


def test_a_worker_is_killed_for_a_test_by_its_pod_and_is_told_so_again(
    cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(termination, "_REPEAT_S", 0.1)  # a kubelet may have missed it
    with launched(cluster) as running:
        assert running.crash("loop-0", "for a test") == ""  # it is not there yet
        pod = begin(cluster)
        until(lambda: running.status()[0].state == "running")

        assert running.crash("loop-0", "for a test") == "SIGKILL"

        until(lambda: commands_of(cluster, pod).repeats == 1)
        assert commands_of(cluster, pod).crash


def commands_of(cluster: FakeCluster, pod: str) -> pod_messages.PodCommands:
    """What the pod is told."""
    annotations = cluster.read("Pod", pod)["metadata"]["annotations"]
    return pod_messages.parse_commands(annotations["launchpad/orders"])


def test_why_a_job_got_no_pod_is_told_while_it_waits_and_at_the_end(
    cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    noted: list[str] = []
    monkeypatch.setattr(Output, "note", lambda self, text, **_: noted.append(text))
    monkeypatch.setattr(missing_pods, "_NO_POD_S", 0.2)
    cluster.no_pods = "no quota"
    with (
        launched(cluster, pending_timeout_s=1) as running,
        pytest.raises(lp.ProgramFailed, match="has made no pod for it in 1 s: FailedCreate: no qu"),
    ):
        running.wait(20)

    assert "loop-0 has no pod yet: FailedCreate: no quota" in noted


def test_a_node_that_falls_silent_is_named_with_the_time_after_which_the_pod_is_deleted(
    cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    noted: list[str] = []
    monkeypatch.setattr(Output, "note", lambda self, text, **_: noted.append(text))
    monkeypatch.setattr(pod_workers, "_EVENT_S", 0.0)
    with launched(cluster) as running:
        pod = begin(cluster)
        until(lambda: running.status()[0].state == "running")
        unreachable = {"key": "node.kubernetes.io/unreachable", "tolerationSeconds": 300}
        cluster.objects["Pod", pod]["spec"] |= {"nodeName": "n7", "tolerations": [unreachable]}

        cluster.be_ready(pod, True)
        cluster.warn(pod, "NodeNotReady")
        cluster.be_ready(pod, False)

        until(lambda: noted)
        assert noted[0].startswith(
            "node n7 does not answer the cluster; it may still run its workers"
        )
        assert "does not answer for 300 s more, the cluster deletes their pods" in noted[0]


def test_a_pod_that_is_merely_not_ready_is_not_reported(
    cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    noted: list[str] = []
    monkeypatch.setattr(Output, "note", lambda self, text, **_: noted.append(text))
    monkeypatch.setattr(pod_workers, "_EVENT_S", 0.0)
    with launched(cluster) as running:
        pod = begin(cluster)
        until(lambda: running.status()[0].state == "running")

        cluster.be_ready(pod, True)
        cluster.be_ready(pod, False)
        cluster.report(pod, WorkerNote("loop-0", "this comes later"))

        until(lambda: "this comes later" in noted)
        assert noted == ["this comes later"]
