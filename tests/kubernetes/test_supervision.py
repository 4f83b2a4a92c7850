"""What a launch does about what happens in a cluster; with one that shows it on demand."""

from __future__ import annotations

import base64
import random
import threading
import time
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

import launchpad as lp
from launchpad import outcome, results
from launchpad.events import Done, Ended, Event, Ready, StopRequested
from launchpad.launch.backends.backend import Workers
from launchpad.launch.backends.kubernetes import pod_messages, pod_status, pod_workers, termination
from launchpad.launch.backends.kubernetes.backend import TestKubernetes
from launchpad.launch.backends.kubernetes.pod_inputs import archives
from launchpad.launch.backends.kubernetes.pod_workers import KubernetesWorkers
from launchpad.launch.backends.kubernetes.settings import FILE
from launchpad.launch.output.printer import Output
from launchpad.launch.plan import LaunchPlan
from launchpad.launch.planning import planner
from launchpad.launch.rundir.directory import RunDirectory
from launchpad.launch.running import Running
from launchpad.outcome import Outcome
from tests import nodes
from tests.kubernetes.fake_cluster import FakeCluster
from tests.waiting import until

SUCCEEDED = Outcome("loop-0", outcome.SUCCEEDED)
RESTARTS = lp.RestartPolicy(max_restarts=3, backoff=0.0)


@pytest.fixture(autouse=True)
def nothing_is_set_outside(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(FILE, raising=False)


class OnFake(TestKubernetes):
    """The backend, on a cluster that is not there."""

    __test__ = False

    def __init__(self, cluster: FakeCluster, **options: Any) -> None:
        super().__init__(image="image", **options)
        self._cluster = cluster

    def create_workers(
        self, plan: LaunchPlan, run: RunDirectory, report: Callable[[Event], None]
    ) -> Workers:
        return KubernetesWorkers(plan, run, report, self._settings, self._cluster)


@pytest.fixture
def cluster() -> FakeCluster:
    return FakeCluster()


@contextmanager
def launched(
    cluster: FakeCluster, program: lp.Program | None = None, **options: Any
) -> Iterator[Running]:
    backend = OnFake(cluster, **options)
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


def begin(cluster: FakeCluster, worker: str = "loop-0", attempt: int = 1) -> str:
    """Has the worker's pod run, and be ready."""
    pod = cluster.pod(worker, attempt)
    cluster.run(pod)
    cluster.report(pod, Ready(worker, attempt, runs=True))
    return pod


@pytest.mark.parametrize("send_code", [True, False])
def test_code_is_sent_unless_it_is_not_to_be(cluster: FakeCluster, send_code: bool) -> None:
    with launched(cluster, send_code=send_code):
        cluster.pod("loop-0", 1)
        secret = next(each for (kind, _), each in cluster.objects.items() if kind == "Secret")
        sent = zlib.decompress(base64.b64decode(secret["data"]["code-000"]))

    assert bool(sent) is send_code


def test_a_program_whose_worker_ends_well_ends_well_and_leaves_nothing(
    cluster: FakeCluster,
) -> None:
    with launched(cluster) as running:
        pod = begin(cluster)
        cluster.write(pod, "looping")
        cluster.report(pod, Ended(SUCCEEDED))
        cluster.end(pod)
        running.wait(20)

        assert running.logs("loop") == "looping\n"
    assert cluster.objects == {}


def test_a_line_is_in_the_log_once_though_the_connection_broke(cluster: FakeCluster) -> None:
    with launched(cluster) as running:
        pod = begin(cluster)
        cluster.write(pod, "one", "two")
        until(lambda: running.logs("loop") == "one\ntwo\n")
        cluster.is_reachable = False
        time.sleep(0.3)
        cluster.write(pod, "three")
        cluster.is_reachable = True
        until(lambda: running.logs("loop") == "one\ntwo\nthree\n")


def test_a_failure_is_reported_with_the_traceback_of_the_worker(cluster: FakeCluster) -> None:
    failed = Outcome(
        "loop-0", outcome.FAILED, "run", 1, "ValueError: boom", "ValueError", "Traceback: here"
    )
    with launched(cluster) as running:
        pod = begin(cluster)
        cluster.report(pod, Ended(failed))
        cluster.end(pod, exit_code=1)

        with pytest.raises(lp.ProgramFailed, match="ValueError: boom") as caught:
            running.wait(20)
        assert "Traceback: here" in str(caught.value)


def test_a_worker_that_fails_is_started_again_as_a_new_job(cluster: FakeCluster) -> None:
    with launched(cluster, program_of(RESTARTS)) as running:
        pod = begin(cluster)
        cluster.end(pod, exit_code=137)
        again = begin(cluster, attempt=2)
        until(lambda: (running.status()[0].state, running.status()[0].attempt) == ("running", 2))

        assert again != pod
        jobs = [name for kind, name in cluster.objects if kind == "Job"]
        assert [name.rpartition("-")[2] for name in jobs] == ["2"]


def test_what_an_old_attempt_still_says_changes_nothing(cluster: FakeCluster) -> None:
    with launched(cluster, program_of(RESTARTS)) as running:
        pod = begin(cluster)
        cluster.end(pod, exit_code=137)
        begin(cluster, attempt=2)
        late = Outcome("loop-0", outcome.SUCCEEDED, attempt=1)
        cluster.write(pod, pod_messages.written(Ended(late)).decode())
        until(lambda: running.status()[0].attempt == 2)
        time.sleep(0.3)

        assert running.status()[0].state == "running"


@pytest.mark.parametrize(
    ("happens", "cause"),
    [
        (lambda c, pod: c.lose(pod), "its pod was deleted, and not by us"),
        (lambda c, pod: c.evict(pod, "Evicted", "low on memory"), "Evicted: low on memory"),
        (lambda c, pod: c.evict(pod, "NodeLost"), "ended its pod: NodeLost"),
        (lambda c, pod: c.end(pod, 137, "OOMKilled"), "out of memory (OOMKilled)"),
        (lambda c, pod: c.end(pod, 139), "killed by SIGSEGV"),
    ],
)
def test_an_end_that_only_the_cluster_knows_of_is_named(
    cluster: FakeCluster, happens: Callable[[FakeCluster, str], None], cause: str
) -> None:
    with launched(cluster) as running:
        pod = begin(cluster)
        until(lambda: running.status()[0].state == "running")
        happens(cluster, pod)

        with pytest.raises(lp.ProgramFailed) as caught:
            running.wait(20)
        assert cause in str(caught.value)
        assert "attempt 1" in str(caught.value)


def test_a_pod_that_finds_no_node_fails_in_the_schedulers_words(cluster: FakeCluster) -> None:
    with launched(cluster, pending_timeout_s=0.5) as running:
        cluster.refuse_to_place(
            cluster.pod("loop-0"), "0/3 nodes are available: 3 Insufficient cpu."
        )

        with pytest.raises(lp.ProgramFailed, match="Unschedulable: 0/3 nodes are available"):
            running.wait(20)


def test_an_image_that_will_never_be_there_is_not_waited_for(cluster: FakeCluster) -> None:
    with launched(cluster, pending_timeout_s=600) as running:
        cluster.wait(cluster.pod("loop-0"), "ErrImageNeverPull", "image is not present")

        with pytest.raises(lp.ProgramFailed, match="ErrImageNeverPull: image is not present"):
            running.wait(20)


def test_a_watch_whose_past_is_forgotten_lists_again(cluster: FakeCluster) -> None:
    with launched(cluster) as running:
        pod = begin(cluster)
        until(lambda: running.status()[0].state == "running")
        cluster.end(pod, exit_code=3)
        cluster.forget()

        with pytest.raises(lp.ProgramFailed, match="exited with code 3"):
            running.wait(20)


def test_a_pod_that_was_lost_while_the_watch_was_down_is_missed_in_the_list(
    cluster: FakeCluster,
) -> None:
    with launched(cluster) as running:
        pod = begin(cluster)
        until(lambda: running.status()[0].state == "running")
        cluster.is_reachable = False
        time.sleep(0.3)
        cluster.lose(pod)
        cluster.forget()
        cluster.is_reachable = True

        with pytest.raises(lp.ProgramFailed, match="its pod was deleted"):
            running.wait(20)


def test_a_worker_that_asks_for_it_stops_the_program(cluster: FakeCluster) -> None:
    with launched(cluster) as running:
        pod = begin(cluster)
        cluster.report(pod, StopRequested("loop-0"))
        cluster.when(lambda: "deletionTimestamp" in cluster.objects["Pod", pod]["metadata"])
        cluster.report(pod, Ended(Outcome("loop-0", outcome.STOPPED)))
        cluster.end(pod)

        running.wait(20)


def test_all_rights_that_are_missing_are_named_before_anything_is_made(
    cluster: FakeCluster,
) -> None:
    cluster.refused = {("create", "Job"), ("get", "Pod/log")}

    with (
        pytest.raises(lp.LaunchError, match="you may not create jobs, get pod/logs"),
        launched(cluster),
    ):
        raise AssertionError("it was launched")
    assert cluster.objects == {}


def test_a_worker_learns_that_another_one_is_gone(cluster: FakeCluster) -> None:
    program = lp.Program("two")
    with program.group("server"):
        server = program.add_node(lp.CourierNode(nodes.ServesBriefly))
    with program.group("loop"):
        program.add_node(lp.PyClassNode(nodes.Loop))
    del server
    with launched(cluster, program):
        first, pod = begin(cluster, "server-0"), begin(cluster)
        cluster.report(first, Ended(Outcome("server-0", outcome.SUCCEEDED)))
        cluster.end(first)

        def requests() -> pod_messages.PodCommands:
            annotations = cluster.objects["Pod", pod]["metadata"]["annotations"]
            return pod_messages.parse_commands(annotations["launchpad/orders"])

        cluster.when(lambda: "server-0" in requests().gone)
        assert "it has ended and serves no more" in requests().gone["server-0"]


def test_what_an_attempt_has_left_is_given_to_the_next_and_kept_with_the_logs(
    cluster: FakeCluster, tmp_path: Path
) -> None:
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


@pytest.mark.parametrize("lost", [0, 3, -1])
@pytest.mark.parametrize("goes_on", [True, False])
def test_a_result_of_which_a_line_was_lost_is_an_error_and_not_none(
    cluster: FakeCluster, lost: int, goes_on: bool
) -> None:
    chunks = result_chunks(LARGE)
    sent = [chunk for chunk in chunks if chunk is not chunks[lost]]
    with launched(cluster) as running:
        pod = begin(cluster)
        for chunk in sent:
            cluster.report(pod, chunk)
        if goes_on:
            cluster.report(pod, Done("loop-0", 1))
        else:
            cluster.report(pod, Ended(SUCCEEDED))
            cluster.end(pod)

        with pytest.raises(
            lp.ResultError, match=f"of what loop-0 returned, {len(sent)} of {len(chunks)} lines"
        ):
            running.results("loop", 20)


def test_lines_of_a_result_that_are_read_again_count_once(cluster: FakeCluster) -> None:
    chunks = result_chunks(LARGE)
    with launched(cluster) as running:
        pod = begin(cluster)
        for chunk in (*chunks[:3], *chunks[:2], chunks[2], *chunks[1:], *chunks[:2]):
            cluster.report(pod, chunk)
        cluster.report(pod, Ended(SUCCEEDED))
        cluster.end(pod)

        assert running.results("loop", 20) == [LARGE]


def test_numbers_of_edges_that_arrive_broken_do_not_replace_the_result(
    cluster: FakeCluster,
) -> None:
    with launched(cluster) as running:
        pod = begin(cluster)
        for chunk in (*result_chunks("done"), pod_messages.Chunk(pod_messages.EDGES, 0, 1, "AAAA")):
            cluster.report(pod, chunk)
        cluster.report(pod, Ended(SUCCEEDED))
        cluster.end(pod)

        assert running.results("loop", 20) == ["done"]


def test_a_worker_that_is_too_slow_to_start_is_ended_by_its_pod(cluster: FakeCluster) -> None:
    policy = lp.RestartPolicy(max_restarts=0, start_timeout_s=0.5)
    with launched(cluster, program_of(policy)) as running:
        pod = cluster.pod("loop-0")
        cluster.run(pod)

        def is_told() -> bool:
            annotations = cluster.objects["Pod", pod]["metadata"]["annotations"]
            return pod_messages.parse_commands(annotations["launchpad/orders"]).kill

        cluster.when(is_told)
        stopped = Outcome("loop-0", outcome.STOPPED, "init", cause="killed when it did not stop")
        cluster.report(pod, Ended(stopped))
        cluster.end(pod)

        with pytest.raises(lp.ProgramFailed, match=r"was not ready within start_timeout_s=0\.5"):
            running.wait(20)


def test_a_launcher_that_fails_itself_gives_up_all_its_workers(
    cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    def raises(*_: object) -> str:
        raise AttributeError("a mistake of ours")

    with launched(cluster) as running:
        pod = begin(cluster)
        until(lambda: running.status()[0].state == "running")
        monkeypatch.setattr(pod_status, "ending", raises)
        cluster.end(pod, exit_code=1)

        with pytest.raises(
            lp.ProgramFailed, match="cannot go on: AttributeError: a mistake of ours"
        ):
            running.wait(20)


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


def test_a_worker_has_ended_when_it_says_so_however_late_its_kubelet_is(
    cluster: FakeCluster,
) -> None:
    with launched(cluster) as running:
        pod = begin(cluster)
        cluster.report(pod, Ended(SUCCEEDED))  # and the pod goes on running, as far as we are told
        running.wait(20)

        assert running.status()[0].state == "succeeded"
    assert cluster.objects == {}


def test_whether_sigkill_was_for_want_of_memory_is_the_clusters_to_say(
    cluster: FakeCluster,
) -> None:
    killed = Outcome("loop-0", outcome.FAILED, "run", 1, "killed by SIGKILL", signal="SIGKILL")
    with launched(cluster) as running:
        pod = begin(cluster)
        until(lambda: running.status()[0].state == "running")
        cluster.report(pod, Ended(killed))
        cluster.end(pod, exit_code=1, reason="OOMKilled")
        with pytest.raises(lp.ProgramFailed, match="out of memory"):
            running.wait(20)


def test_a_worker_that_stopped_unasked_was_deleted_from_outside(cluster: FakeCluster) -> None:
    with launched(cluster) as running:
        pod = begin(cluster)
        until(lambda: running.status()[0].state == "running")
        cluster.report(pod, Ended(Outcome("loop-0", outcome.STOPPED, "run")))
        cluster.lose(pod)
        with pytest.raises(lp.ProgramFailed, match="its pod was deleted, and not by us"):
            running.wait(20)


def test_a_worker_is_killed_for_a_test_by_its_pod(cluster: FakeCluster) -> None:
    with launched(cluster) as running:
        assert running.crash("loop-0", "for a test") == ""  # it is not there yet
        pod = begin(cluster)
        until(lambda: running.status()[0].state == "running")

        assert running.crash("loop-0", "for a test") == "SIGKILL"

        until(lambda: pod_messages.parse_commands(commands_of(cluster, pod)).crash)


def test_what_a_kubelet_may_have_missed_is_said_once_more(
    cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(termination, "_REPEAT_S", 0.1)
    with launched(cluster) as running:
        pod = begin(cluster)
        until(lambda: running.status()[0].state == "running")
        running.crash("loop-0", "for a test")

        until(lambda: pod_messages.parse_commands(commands_of(cluster, pod)).repeats == 1)

        assert pod_messages.parse_commands(commands_of(cluster, pod)).crash


def commands_of(cluster: FakeCluster, pod: str) -> str:
    return str(cluster.read("Pod", pod)["metadata"]["annotations"]["launchpad/orders"])


def test_why_a_job_got_no_pod_is_told_while_it_waits_and_at_the_end(
    cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    noted: list[str] = []
    monkeypatch.setattr(Output, "note", lambda self, text, **_: noted.append(text))
    monkeypatch.setattr(pod_workers, "_NO_POD_S", 0.2)
    monkeypatch.setattr(cluster, "_pod_of", lambda job: {**job, "kind": "NoPod"})
    event = {"kind": "Event", "type": "Warning", "reason": "FailedCreate", "message": "no quota"}
    cluster.objects["Event", "e"] = {**event, "metadata": {"name": "e"}}
    with (
        launched(cluster, pending_timeout_s=1) as running,
        pytest.raises(lp.ProgramFailed, match="has made no pod for it in 1 s: FailedCreate: no qu"),
    ):
        running.wait(20)

    assert "loop-0 has no pod yet: FailedCreate: no quota" in noted
    del cluster.objects["Event", "e"]
