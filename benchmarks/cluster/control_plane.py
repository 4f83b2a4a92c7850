"""The control plane of a cluster without nodes: etcd, an API server and controllers, all real."""

from __future__ import annotations

import json
import socket
import ssl
import subprocess
import tempfile
import urllib.error
import urllib.request
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Self

import yaml

from benchmarks.harness.processes import ROOT, wait_until

LAUNCHER = "launcher"
KUBELETS = "kubelets"
CONTROLLERS = "controllers"
USERS = (LAUNCHER, KUBELETS, CONTROLLERS)
"""The users of the API server. Each has all rights, and its name as its token."""

_START_S = 60.0

_CONTROLLERS = "job,garbagecollector,serviceaccount,serviceaccount-token"
"""The controllers that a launch needs. Without the one for nodes, simulated nodes need no heartbeats."""

_AUDIT_POLICY = {
    "apiVersion": "audit.k8s.io/v1",
    "kind": "Policy",
    "omitStages": ["RequestReceived"],
    "rules": [{"level": "Metadata", "users": [LAUNCHER]}, {"level": "None"}],
}


def find_binaries() -> Path:
    """Return the folder with the programs of a cluster. They are built if that was never done.

    Exit with the reason if this machine cannot build them.
    """
    done = subprocess.run(
        [str(ROOT / ".ci/cluster"), "build"], stdout=subprocess.PIPE, text=True, check=False
    )
    if done.returncode:
        raise SystemExit(done.returncode)
    return Path(done.stdout.strip())


class ControlPlane:
    """The control plane, from the start of the block to its end. Its files are in a temporary folder.

    Args:
        binaries: The folder with `etcd`, `kube-apiserver` and `kube-controller-manager`.

    Attributes:
        url: The address of the API server.
        certificates: The folder with the API server's own certificate and key.
    """

    def __init__(self, binaries: Path) -> None:
        self._binaries = binaries
        self._stack = ExitStack()
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        self._n_read = 0

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="control-plane-"))
            self._folder = Path(folder)
            stack.callback(self._end)
            self._start()
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    @property
    def certificates(self) -> Path:
        return self._folder / "certificates"

    def kubeconfig(self, user: str) -> str:
        """Return the path of a kubeconfig for a user."""
        config = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [
                {"name": "c", "cluster": {"server": self.url, "insecure-skip-tls-verify": True}}
            ],
            "users": [{"name": user, "user": {"token": user}}],
            "contexts": [{"name": "c", "context": {"cluster": "c", "user": user}}],
            "current-context": "c",
        }
        path = self._folder / f"{user}.kubeconfig"
        path.write_text(yaml.safe_dump(config))
        return str(path)

    def start_api_server(self) -> None:
        """Start the API server, and wait until it is ready."""
        self._run("kube-apiserver", *self._api_server_flags)
        if not wait_until(self._is_ready, _START_S, pause_s=0.1):
            raise TimeoutError(f"the API server isn't ready after {_START_S:g} s: {self._tail()}")

    def kill_api_server(self) -> None:
        """Kill the API server, so that all connections break."""
        self._kill("kube-apiserver")

    @property
    def api_server_pid(self) -> int:
        return self._processes["kube-apiserver"].pid

    def new_requests(self) -> Counter[str]:
        """Return the launcher's requests since the last call: "create jobs" → number.

        The API server writes a line when a request has ended; for one that streams, also when its answer
        begins.
        """
        counts: Counter[str] = Counter()
        with open(self._folder / "audit.log") as file:
            file.seek(self._n_read)
            while line := file.readline():
                if not line.endswith("\n"):
                    break
                self._n_read += len(line.encode())
                event = json.loads(line)
                counts[_title(event)] += _counts(event)
        return +counts

    def _start(self) -> None:
        etcd, etcd_peers, api = _free_ports(3)
        self.url = f"https://127.0.0.1:{api}"
        files = {
            "tokens.csv": "".join(f"{user},{user},{user},system:masters\n" for user in USERS),
            "audit.yaml": yaml.safe_dump(_AUDIT_POLICY),
        }
        for name, text in files.items():
            (self._folder / name).write_text(text)
        (self._folder / "audit.log").touch()
        key = self._folder / "accounts.key"
        subprocess.run(
            ["openssl", "genrsa", "-out", str(key), "2048"], check=True, capture_output=True
        )
        etcd_url = f"http://127.0.0.1:{etcd}"
        peers_url = f"http://127.0.0.1:{etcd_peers}"
        self._api_server_flags = (
            f"--etcd-servers={etcd_url}",
            "--bind-address=127.0.0.1",
            f"--secure-port={api}",
            "--insecure-port=0",
            "--advertise-address=10.0.9.1",  # for a Service that nothing here uses
            "--kubelet-preferred-address-types=InternalIP",
            f"--cert-dir={self.certificates}",
            f"--token-auth-file={self._folder / 'tokens.csv'}",
            "--authorization-mode=RBAC",
            "--service-cluster-ip-range=10.96.0.0/16",
            f"--service-account-key-file={key}",
            f"--service-account-signing-key-file={key}",
            "--service-account-issuer=https://kubernetes.default.svc",
            f"--audit-policy-file={self._folder / 'audit.yaml'}",
            f"--audit-log-path={self._folder / 'audit.log'}",
            "--audit-log-maxsize=10000",
        )
        self._run(
            "etcd",
            f"--data-dir={self._folder / 'etcd'}",
            f"--listen-client-urls={etcd_url}",
            f"--advertise-client-urls={etcd_url}",
            f"--listen-peer-urls={peers_url}",
            f"--initial-advertise-peer-urls={peers_url}",
            f"--initial-cluster=default={peers_url}",
            "--unsafe-no-fsync",
        )
        self.start_api_server()
        # By default, each controller asks the API server 20 times a second at most, so that 1,000 Jobs have
        # their pods after minutes.
        self._run(
            "kube-controller-manager",
            f"--kubeconfig={self.kubeconfig(CONTROLLERS)}",
            f"--service-account-private-key-file={key}",
            f"--controllers={_CONTROLLERS}",
            "--leader-elect=false",
            "--port=0",
            "--secure-port=0",
            "--kube-api-qps=1000",
            "--kube-api-burst=1000",
        )

    def _run(self, program: str, *flags: str) -> None:
        with open(self._folder / f"{program}.log", "ab") as log:
            self._processes[program] = subprocess.Popen(
                [str(self._binaries / program), *flags],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=self._folder,
            )

    def _kill(self, program: str) -> None:
        process = self._processes.pop(program)
        process.kill()
        process.wait()

    def _end(self) -> None:
        for program in reversed(list(self._processes)):
            self._kill(program)

    def _is_ready(self) -> bool:
        if self._processes["kube-apiserver"].poll() is not None:
            raise RuntimeError(f"the API server has ended: {self._tail()}")
        request = urllib.request.Request(
            f"{self.url}/readyz", headers={"Authorization": f"Bearer {KUBELETS}"}
        )
        try:
            with urllib.request.urlopen(request, timeout=5, context=unverified()):
                return True
        except OSError:
            return False

    def _tail(self) -> str:
        return (self._folder / "kube-apiserver.log").read_text(errors="replace")[-2000:]


def unverified() -> ssl.SSLContext:
    """Return the settings of a connection to an API server with a certificate of its own."""
    context = ssl.create_default_context()
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context


def _free_ports(n: int) -> Sequence[int]:
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(n)]
    ports = [listener.getsockname()[1] for listener in sockets]
    for listener in sockets:
        listener.close()
    return ports


def _title(event: Mapping[str, Any]) -> str:
    target = event.get("objectRef", {})
    resource = "/".join(filter(None, (target.get("resource"), target.get("subresource"))))
    title = f"{event['verb']} {resource}"
    status = event.get("responseStatus", {}).get("code", 0)
    return f"{title} ({status})" if status >= 400 else title


def _counts(event: Mapping[str, Any]) -> int:
    """Return 1 for the line by which a request is counted, 0 for a second line about the same request."""
    is_stream = event["verb"] == "watch" or event.get("objectRef", {}).get("subresource") == "log"
    status = event.get("responseStatus", {}).get("code", 0)
    is_start = event["stage"] == "ResponseStarted"
    return int(is_start if is_stream and status < 400 else not is_start)
