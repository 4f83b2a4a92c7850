"""Which requests a launch sends, in which order, and how few they are."""

from __future__ import annotations

import logging
import re
import resource
import socket
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
import yaml

import launchpad as lp
from launchpad.launch.backends.kubernetes import missing_pods, open_files, pod_workers, termination
from launchpad.launch.backends.kubernetes.api import log_follower
from launchpad.launch.backends.kubernetes.api.client import Cluster
from launchpad.launch.backends.kubernetes.api.log_follower import LogFollower
from launchpad.launch.backends.kubernetes.api.pod_watch import essentials
from launchpad.launch.backends.kubernetes.api.request_lanes import RequestLanes
from launchpad.launch.logs.log_writer import LogWriter
from launchpad.launch.logs.rotation import Rotation
from launchpad.launch.output.printer import Output
from launchpad.outcome import STOPPED, SUCCEEDED, Outcome
from launchpad.runtime.events import Ended
from tests import nodes
from tests.kubernetes.fake_cluster import FakeCluster
from tests.kubernetes.test_supervision import begin, commands_of, launched, program_of
from tests.waiting import until


@pytest.fixture(autouse=True)
def no_log_is_awaited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pod_workers, "_LOG_S", 0.2)  # of a pod that is lost


@pytest.fixture
def errors() -> list[Exception]:
    return []


@pytest.fixture
def lanes(errors: list[Exception]) -> Iterator[RequestLanes]:
    lanes = RequestLanes(errors.append)
    yield lanes
    lanes.close()


def test_requests_about_a_worker_keep_their_order(lanes: RequestLanes) -> None:
    sent: dict[str, list[int]] = {"a": [], "b": [], "c": []}

    for number in range(300):
        for worker, numbers in sent.items():
            lanes.add(worker, lambda numbers=numbers, number=number: numbers.append(number))

    until(lambda: all(len(numbers) == 300 for numbers in sent.values()))
    assert all(numbers == list(range(300)) for numbers in sent.values())


def test_a_request_does_not_wait_for_one_about_another_worker(lanes: RequestLanes) -> None:
    meeting = threading.Barrier(3)

    lanes.add("a", lambda: meeting.wait(20))
    lanes.add("b", lambda: meeting.wait(20))

    meeting.wait(20)


def test_a_request_that_fails_is_reported_and_the_next_is_sent(
    lanes: RequestLanes, errors: list[Exception]
) -> None:
    sent = threading.Event()

    lanes.add("a", lambda: 1 / 0)
    lanes.add("a", sent.set)

    assert sent.wait(20)
    assert [type(error) for error in errors] == [ZeroDivisionError]


def test_closed_lanes_have_ended_what_was_under_way_and_send_no_more(
    errors: list[Exception],
) -> None:
    lanes = RequestLanes(errors.append)
    has_begun = threading.Event()
    may_end = threading.Event()
    sent: list[str] = []

    def slow() -> None:
        has_begun.set()
        may_end.wait(20)
        sent.append("first")

    lanes.add("a", slow)
    lanes.add("a", lambda: sent.append("second"))
    has_begun.wait(20)
    closing = threading.Thread(target=lanes.close)
    closing.start()
    may_end.set()
    closing.join(20)
    lanes.add("a", lambda: sent.append("third"))

    assert sent == ["first"]


def test_a_job_is_deleted_once_though_its_pod_is_seen_to_be_deleted(cluster: FakeCluster) -> None:
    with launched(cluster) as running:
        pod = begin(cluster)
        until(lambda: running.status()[0].state == "running")
        stopping = threading.Thread(target=running.stop)
        stopping.start()
        cluster.when(lambda: "deletionTimestamp" in cluster.objects["Pod", pod]["metadata"])
        cluster.report(pod, Ended(Outcome("loop-0", STOPPED)))
        cluster.end(pod)
        stopping.join(20)

    assert cluster.requests["delete", "Job"] == 1


def test_a_job_is_created_once_the_cluster_answers_again(
    cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pod_workers, "_AGAIN_S", 0.02)
    restart = lp.RestartPolicy(max_restarts=1, backoff=0.0)

    with launched(cluster, program_of(restart)) as running:
        pod = begin(cluster)
        until(lambda: running.status()[0].state == "running")
        cluster.busy.add(("create", "Job"))
        cluster.end(pod, exit_code=1)
        until(lambda: cluster.requests["create", "Job"] > 3)
        cluster.busy.clear()
        begin(cluster, attempt=2)
        until(lambda: (running.status()[0].state, running.status()[0].attempt) == ("running", 2))


def test_a_worker_that_is_stopped_before_its_job_could_be_created_gets_none(
    cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pod_workers, "_AGAIN_S", 0.02)
    cluster.busy.add(("create", "Job"))

    with launched(cluster) as running:
        until(lambda: cluster.requests["create", "Job"] > 3)
        running.stop()
        cluster.busy.clear()

    assert running.status()[0].state == "stopped"
    assert not [name for kind, name in cluster.objects if kind in ("Job", "Pod")]


def test_pods_are_told_of_many_that_are_gone_by_few_requests(
    cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(termination, "_REPEAT_S", 600.0)
    monkeypatch.setattr(termination, "_AGAIN_S", 0.02)
    servers = [f"server-{i}" for i in range(20)]
    program = lp.Program("fake")
    with program.group("server"):
        for _ in servers:
            program.add_node(lp.CourierNode(nodes.ServesBriefly))
    program.add_node(lp.PyClassNode(nodes.Loop), label="loop")

    with launched(cluster, program) as running:
        pods = {worker: begin(cluster, worker) for worker in servers}
        told = begin(cluster)
        cluster.busy.add(("patch", "Pod"))
        for worker, pod in pods.items():
            cluster.report(pod, Ended(Outcome(worker, SUCCEEDED)))
            cluster.end(pod)
        until(lambda: sum(row.state == "succeeded" for row in running.status()) == len(servers))
        cluster.requests.clear()
        cluster.busy.clear()
        until(lambda: set(commands_of(cluster, told).gone) == set(servers))

        assert cluster.requests["patch", "Pod"] <= 3


def test_why_many_workers_have_no_pod_is_asked_and_told_for_all_of_them_together(
    cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    notes: list[str] = []
    monkeypatch.setattr(Output, "note", lambda self, text, **_: notes.append(text))
    monkeypatch.setattr(missing_pods, "_NO_POD_S", 1.0)
    cluster.no_pods = "no quota"
    program = lp.Program("fake")
    with program.group("loop"):
        for _ in range(30):
            program.add_node(lp.PyClassNode(nodes.Loop))

    def told() -> list[int]:
        """Return the numbers of workers that the notes are about."""
        found = (
            re.search(r"(?:and (\d+) others have| has) no pod yet: .*no quota", n) for n in notes
        )
        return [1 + int(match[1] or 0) for match in found if match]

    with launched(cluster, program):
        until(lambda: sum(told()) == 30)

    # Not all Jobs are created at the same moment.
    assert len(told()) <= 3
    assert cluster.requests["list", "Event"] <= 3


def test_a_launcher_keeps_of_a_pod_only_what_it_reads() -> None:
    pod = {
        "metadata": {"name": "p", "uid": "u", "managedFields": [{"fieldsV1": {}}]},
        "spec": {
            "nodeName": "n",
            "volumes": [{"name": "given"}],
            "tolerations": [{"key": "k", "tolerationSeconds": 3}],
            "containers": [{"name": "worker", "resources": {"limits": {}}, "command": ["python3"]}],
        },
        "status": {"phase": "Running"},
    }

    assert essentials(pod) == {
        "metadata": {"name": "p", "uid": "u"},
        "spec": {
            "nodeName": "n",
            "containers": [{"name": "worker", "resources": {"limits": {}}}],
            "tolerations": [{"key": "k", "tolerationSeconds": 3}],
        },
        "status": {"phase": "Running"},
    }


def test_logs_that_cannot_be_read_are_asked_for_less_and_less_often(
    cluster: FakeCluster,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr(log_follower, "_SOON_S", 0.01)
    monkeypatch.setattr(log_follower, "_LATE_S", 0.2)
    caplog.set_level(logging.DEBUG, "launchpad.kubernetes")
    cluster.is_reachable = False
    log = LogWriter(tmp_path / "log", Rotation(), print)

    follower = LogFollower(cluster, "pod", log, print, lambda: None)  # type: ignore[arg-type]
    until(lambda: len(caplog.messages) >= 7)
    follower.is_over.set()
    follower.thread.join(20)

    pauses = [message.rpartition("again in ")[2] for message in caplog.messages[:7]]
    assert pauses == ["0.01 s", "0.02 s", "0.04 s", "0.08 s", "0.16 s", "0.20 s", "0.20 s"]


@pytest.fixture
def few_open_files() -> Iterator[None]:
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (1000, limits[1]))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, limits)


@pytest.mark.usefixtures("few_open_files")
def test_a_launcher_of_many_pods_may_open_more_files() -> None:
    hard_limit = resource.getrlimit(resource.RLIMIT_NOFILE)[1]

    open_files.make_room(100)
    few = resource.getrlimit(resource.RLIMIT_NOFILE)
    open_files.make_room(500)
    many = resource.getrlimit(resource.RLIMIT_NOFILE)

    assert few == (1000, hard_limit)
    assert many == (1256, hard_limit)


def test_more_pods_than_the_launcher_may_open_files_for_are_refused_with_the_limit(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda kind: (512, 1024))

    with pytest.raises(lp.LaunchError, match=r"1,000 pods need 2,256 open files .* here is 1,024"):
        open_files.make_room(1000)


class Silent(BaseHTTPRequestHandler):
    """An API server whose logs say nothing."""

    protocol_version = "HTTP/1.1"
    may_end = threading.Event()

    def do_GET(self) -> None:
        self.send_response(200)
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        self.may_end.wait(20)
        self.wfile.write(b"0\r\n\r\n")
        self.close_connection = True

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def silent_cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Cluster]:
    Silent.may_end.clear()
    with ThreadingHTTPServer(("127.0.0.1", 0), Silent) as server:
        threading.Thread(target=server.serve_forever).start()
        config = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [
                {"name": "c", "cluster": {"server": f"http://127.0.0.1:{server.server_port}"}}
            ],
            "users": [{"name": "u", "user": {}}],
            "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
            "current-context": "c",
        }
        path = tmp_path / "kubeconfig"
        path.write_text(yaml.safe_dump(config))
        monkeypatch.setenv("KUBECONFIG", str(path))
        # The package may have read $KUBECONFIG when it was imported.
        monkeypatch.setattr("kubernetes.config.kube_config.KUBE_CONFIG_DEFAULT_LOCATION", str(path))
        silent = Cluster()
        yield silent
        Silent.may_end.set()
        silent.close()
        server.shutdown()


def test_the_kernel_notices_that_the_connection_of_a_silent_log_is_dead(
    silent_cluster: Cluster,
) -> None:
    reading = threading.Thread(target=lambda: list(silent_cluster.log("pod")), daemon=True)
    reading.start()
    (response,) = until(lambda: list(silent_cluster._streams))

    connection = response.connection.sock

    assert connection.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
    assert connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE) <= 60
    Silent.may_end.set()
    reading.join(20)
