"""Simulated kubelets: the nodes of a cluster, with a scheduler, in one process. No container runs.

    API server ── watch ──▶ pods ── a task each, in a pool of threads ──▶ binding, status, deletion
               ── GET containerLogs ──▶ the log server, which all nodes share

To the API server and to a launcher, a simulated pod looks like a real one: it is placed, it waits for its
container, it runs, its log says that its worker is ready, and its node reports it as ready. If it is deleted,
it ends in good order. If it is told to fail, its log and its status say so.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import ssl
import threading
import time
import urllib.parse
from collections.abc import AsyncIterator, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import UTC, datetime
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import urllib3

from benchmarks.cluster.control_plane import KUBELETS
from launchpad import outcome
from launchpad.launch.backends.kubernetes import pod_messages
from launchpad.launch.backends.kubernetes.api.client import CONTAINER
from launchpad.launch.backends.kubernetes.manifests import names
from launchpad.outcome import Outcome
from launchpad.runtime.events import Ended, Ready

PODS_PER_NODE = 110
"""The most pods that a kubelet takes by default."""

_THREADS = 16
_AGAIN_S = 0.5
_BUSY = (429, 500, 503, 504)

Pod = dict[str, Any]


class Api:
    """The API of the cluster, as a kubelet uses it. Thread-safe."""

    def __init__(self, url: str) -> None:
        urllib3.disable_warnings(urllib3.exceptions.InsecureRequestWarning)
        self._pool = urllib3.PoolManager(maxsize=2 * _THREADS, cert_reqs="CERT_NONE")
        self._url = url

    def call(self, method: str, path: str, body: Any = None) -> dict[str, Any]:
        """Return the answer to a request. Try again while the API server is away or busy."""
        while True:
            try:
                response = self._request(method, path, body)
            except urllib3.exceptions.HTTPError:
                time.sleep(_AGAIN_S)
                continue
            answer: dict[str, Any] = json.loads(response.data)
            if response.status < 400 or response.status in (404, 409):
                return answer
            if response.status not in _BUSY:
                raise RuntimeError(f"{method} {path}: {answer.get('message')}")
            time.sleep(_AGAIN_S)

    def watch(self, path: str) -> Iterator[dict[str, Any]]:
        """Yield the lines of a watch, until it ends for any reason."""
        with contextlib.suppress(urllib3.exceptions.HTTPError, OSError):
            response = self._request("GET", path, None, preload_content=False, timeout=300)
            partial = b""
            while data := response.read1():
                *lines, partial = (partial + data).split(b"\n")
                yield from map(json.loads, lines)

    def _request(self, method: str, path: str, body: Any, **options: Any) -> Any:
        content = "application/merge-patch+json" if method == "PATCH" else "application/json"
        headers = {"Authorization": f"Bearer {KUBELETS}", "Content-Type": content}
        options = {"timeout": 30, "retries": False, **options}
        if body is not None:
            options["json"] = body
        return self._pool.request(method, self._url + path, headers=headers, **options)


class PodLog:
    """The log of a pod. All methods are for the thread of the log server."""

    def __init__(self) -> None:
        self._lines: list[bytes] = []
        self._is_over = False
        self._changed = asyncio.Event()

    def write(self, line: bytes, is_last: bool = False) -> None:
        """Add a line with the time."""
        now = datetime.now(UTC).isoformat(timespec="microseconds")
        self._lines.append(now.replace("+00:00", "000Z ").encode() + line)
        self._is_over |= is_last
        self._changed.set()
        self._changed = asyncio.Event()

    async def follow(self, since: str) -> AsyncIterator[bytes]:
        """Yield the lines from that second on, as they come."""
        n_seen = 0
        while True:
            changed = self._changed
            for line in self._lines[n_seen:]:
                if line[: len("2026-01-01T00:00:00")] >= since[:19].encode():
                    yield line
            n_seen = len(self._lines)
            if self._is_over:
                return
            await changed.wait()


class LogServer:
    """The part of all kubelets that the API server asks for logs, in a thread of its own.

    Attributes:
        port: Its port, on 127.0.0.1.
        n_open: The number of logs that are being followed now.
    """

    def __init__(self, certificates: Path) -> None:
        self._logs: dict[str, PodLog] = {}
        self._certificates = certificates
        self._loop = asyncio.new_event_loop()
        self._has_begun = threading.Event()
        self.port = 0
        self.n_open = 0
        threading.Thread(target=self._run, daemon=True).start()
        self._has_begun.wait()

    def write(self, pod: str, line: bytes, is_last: bool = False) -> None:
        """Add a line to the log of a pod. May be called in any thread."""
        self._loop.call_soon_threadsafe(self._write, pod, line, is_last)

    def forget(self, pod: str) -> None:
        """Remove the log of a pod. May be called in any thread."""
        self._loop.call_soon_threadsafe(self._logs.pop, pod, None)

    def _write(self, pod: str, line: bytes, is_last: bool) -> None:
        self._logs.setdefault(pod, PodLog()).write(line, is_last)

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        context.load_cert_chain(
            self._certificates / "apiserver.crt", self._certificates / "apiserver.key"
        )
        starting = asyncio.start_server(
            self._serve, "127.0.0.1", 0, ssl=context, backlog=2048, limit=1 << 16
        )
        server = self._loop.run_until_complete(starting)
        self.port = server.sockets[0].getsockname()[1]
        self._has_begun.set()
        self._loop.run_forever()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.n_open += 1
        answering: asyncio.Future[Any] | None = None
        try:
            head = await reader.readuntil(b"\r\n\r\n")
            url = urllib.parse.urlsplit(head.split(b" ")[1].decode())
            answering = asyncio.ensure_future(self._answer(url, writer))
            # The end of the stream means that nobody reads the log any more.
            gone = asyncio.ensure_future(reader.read())
            await asyncio.wait({answering, gone}, return_when=asyncio.FIRST_COMPLETED)
            gone.cancel()
        except (OSError, asyncio.IncompleteReadError):
            pass
        finally:
            self.n_open -= 1
            if answering is not None:
                answering.cancel()
            writer.close()

    async def _answer(self, url: urllib.parse.SplitResult, writer: asyncio.StreamWriter) -> None:
        pod = url.path.split("/")[3]  # /containerLogs/<namespace>/<pod>/<container>
        since = urllib.parse.parse_qs(url.query).get("sinceTime", [""])[0]
        log = self._logs.get(pod)
        if log is None:
            writer.write(
                b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
            )
            await writer.drain()
            return
        head = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nConnection: close\r\n\r\n"
        writer.write(head.encode())
        async for line in log.follow(since):
            writer.write(b"%x\r\n%b\r\n" % (len(line), line))
            await writer.drain()
        writer.write(b"0\r\n\r\n")
        await writer.drain()


@dataclass
class SimulatedPod:
    """A pod of a node. `path` is its address in the API."""

    path: str
    name: str
    uid: str
    worker: str
    attempt: int
    ip: str
    node: str
    is_running: bool = False
    is_over: bool = False
    is_deleted: bool = False


class SimulatedKubelets:
    """All nodes of a cluster, and its scheduler.

    Args:
        url: The address of the API server.
        certificates: A folder with a certificate and a key for the log server.
    """

    def __init__(self, url: str, certificates: Path, n_nodes: int) -> None:
        self._api = Api(url)
        self._logs = LogServer(certificates)
        self._pool = ThreadPoolExecutor(_THREADS)
        self._pods: dict[str, SimulatedPod] = {}
        self._n_pods = 0
        self._nodes = [f"node-{i}" for i in range(n_nodes)]
        for name in self._nodes:
            self._api.call("POST", "/api/v1/nodes", self._node(name))
        threading.Thread(target=self._watch, daemon=True).start()

    def fail(self, n: int) -> int:
        """Have the first `n` pods that run fail; return how many did."""
        failing = [pod for pod in list(self._pods.values()) if pod.is_running and not pod.is_over]
        for pod in failing[:n]:
            cause = "RuntimeError: this pod was told to fail"
            self._pool.submit(self._end, pod, outcome.FAILED, cause)
        return len(failing[:n])

    def counts(self) -> dict[str, int]:
        """Return the numbers of pods and of followed logs."""
        pods = list(self._pods.values())
        return {"pods": len(pods), "followed": self._logs.n_open}

    def _node(self, name: str) -> Mapping[str, Any]:
        amounts = {"cpu": "64", "memory": "256Gi", "pods": str(PODS_PER_NODE)}
        return {
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {"name": name},
            "status": {
                "capacity": amounts,
                "allocatable": amounts,
                "addresses": [{"type": "InternalIP", "address": "127.0.0.1"}],
                "daemonEndpoints": {"kubeletEndpoint": {"Port": self._logs.port}},
                "conditions": [{"type": "Ready", "status": "True", "reason": "Simulated"}],
            },
        }

    def _watch(self) -> None:
        """Watch pods for ever. After a break, list them again."""
        while True:
            listed = self._api.call("GET", "/api/v1/pods")
            for pod in listed["items"]:
                self._on_pod(pod)
            version = listed["metadata"]["resourceVersion"]
            for event in self._api.watch(f"/api/v1/pods?watch=true&resourceVersion={version}"):
                if event["type"] in ("ADDED", "MODIFIED"):
                    self._on_pod(event["object"])
                elif event["type"] == "DELETED":
                    metadata = event["object"]["metadata"]
                    self._pods.pop(metadata["uid"], None)
                    self._logs.forget(metadata["name"])
                else:
                    break

    def _on_pod(self, description: Pod) -> None:
        metadata = description["metadata"]
        pod = self._pods.get(metadata["uid"])
        if pod is None:
            number = self._n_pods
            self._n_pods += 1
            pod = SimulatedPod(
                f"/api/v1/namespaces/{metadata['namespace']}/pods/{metadata['name']}",
                metadata["name"],
                metadata["uid"],
                metadata["labels"][names.WORKER],
                int(metadata["labels"][names.ATTEMPT]),
                f"10.{100 + number // 65000}.{number // 250 % 260}.{number % 250 + 1}",
                self._nodes[number % len(self._nodes)],
            )
            self._pods[pod.uid] = pod
            self._pool.submit(self._begin, pod)
        if "deletionTimestamp" in metadata and not pod.is_deleted:
            pod.is_deleted = True
            self._pool.submit(self._stop, pod)

    def _begin(self, pod: SimulatedPod) -> None:
        """Place a pod, and start its container, in the steps of a real kubelet."""
        target = {"apiVersion": "v1", "kind": "Node", "name": pod.node}
        binding = {"apiVersion": "v1", "kind": "Binding", "metadata": {"name": pod.name}}
        self._api.call("POST", f"{pod.path}/binding", {**binding, "target": target})
        waiting = {"waiting": {"reason": "ContainerCreating"}}
        self._report(pod, "Pending", waiting, is_ready=False, begins=True)
        if pod.is_deleted:
            return
        # Write this first: a launcher asks for the log as soon as the container runs.
        self._logs.write(pod.name, _line(Ready(pod.worker, pod.attempt, runs=False)))
        running = {"running": {"startedAt": _now()}}
        self._report(pod, "Running", running, is_ready=False)
        pod.is_running = True
        self._report(pod, "Running", running, is_ready=True)

    def _stop(self, pod: SimulatedPod) -> None:
        if not pod.is_over:
            self._end(pod, outcome.STOPPED, "")
        body = {"gracePeriodSeconds": 0, "preconditions": {"uid": pod.uid}}
        self._api.call("DELETE", pod.path, body)

    def _end(self, pod: SimulatedPod, kind: str, cause: str) -> None:
        """End the container of a pod: with a last line in its log, and then in its status."""
        pod.is_over = True
        end = Outcome(pod.worker, kind, "run", pod.attempt, cause)
        self._logs.write(pod.name, _line(Ended(end)), is_last=True)
        code = outcome.exit_status(end) if end.is_failure else 0
        message = pod_messages.termination_message(end).decode()
        reason = "Error" if code else "Completed"
        terminated = {"exitCode": code, "reason": reason, "message": message, "finishedAt": _now()}
        phase = "Failed" if code else "Succeeded"
        self._report(pod, phase, {"terminated": terminated}, is_ready=False)

    def _report(
        self,
        pod: SimulatedPod,
        phase: str,
        state: Mapping[str, Any],
        *,
        is_ready: bool,
        begins: bool = False,
    ) -> None:
        """Write the status of a pod."""
        ready = "True" if is_ready else "False"
        conditions = [
            {"type": name, "status": status, "lastTransitionTime": _now()}
            for name, status in (
                ("Initialized", "True"),
                ("Ready", ready),
                ("ContainersReady", ready),
                ("PodScheduled", "True"),
            )
        ]
        container = {
            "name": CONTAINER,
            "image": "simulated:1",
            "imageID": "",
            "ready": is_ready,
            "restartCount": 0,
            "state": state,
        }
        addresses = {} if begins else {"podIP": pod.ip, "podIPs": [{"ip": pod.ip}]}
        status = {
            "phase": phase,
            "hostIP": "127.0.0.1",
            "startTime": _now(),
            "conditions": conditions,
            "containerStatuses": [container],
            **addresses,
        }
        body = {"metadata": {"uid": pod.uid}, "status": status}
        self._api.call("PATCH", f"{pod.path}/status", body)


def serve(url: str, certificates: str, n_nodes: int, pipe: Connection) -> None:
    """Run the kubelets, and do what comes over the pipe: (name of a method, arguments), until it closes."""
    kubelets = SimulatedKubelets(url, Path(certificates), n_nodes)
    pipe.send("ready")
    with contextlib.suppress(EOFError):
        while True:
            method, *arguments = pipe.recv()
            pipe.send(getattr(kubelets, method)(*arguments))


def _line(report: Any) -> bytes:
    return pod_messages.written(report)


def _now() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
