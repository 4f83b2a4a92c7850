"""A real Kubernetes on the hosts of a network: the control plane on h1, and each other host is a node.

    h1       etcd, API server, controllers, scheduler, DNS; users launch programs from here
    h2 …     containerd and a kubelet, and a bridge for pods; routes lead to the bridges of other hosts

There is no kube-proxy, so Services have no addresses of their own; launchpad needs none. No network policy is
enforced. There is no registry: the two images of `.ci/cluster` are imported on each node.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
from collections.abc import Callable
from pathlib import Path

from tests.hosts.host import Host
from tests.hosts.network import Network
from tests.waiting import until

WORK = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache"), "kubernetes-for-tests/work")
"""What `.ci/cluster build` has made."""

PORT = 16443
"""The API server's; the DNS server looks for it there."""

KUBECONFIG = "/etc/kubernetes/kubeconfig"
"""The administrator's, on all hosts."""

NOTICED_S = 8
"""How long a node may be silent until the cluster calls it unreachable; 40 s by default."""

_PROGRAMS = ("containerd", "runc", "ctr", "kubectl", "openssl", "/usr/lib/cni/bridge")
_FILES = ("bin/etcd", "bin/kubelet", "images.tar", "dns.py")
_TOKEN = "lp-admin-token"
_FOLDER = "/etc/kubernetes"
_CONTAINERD = "/run/containerd/containerd.sock"
_ROUTES = "10.244.{number}.0/24"

_KUBECONFIG = """
apiVersion: v1
kind: Config
clusters: [{{name: c, cluster: {{server: "https://{api}:{port}", insecure-skip-tls-verify: true}}}}]
users: [{{name: admin, user: {{token: {token}}}}}]
contexts: [{{name: c, context: {{cluster: c, user: admin, namespace: default}}}}]
current-context: c
"""

# The root of a host is an overlay, on which containerd can make no other one: its native snapshotter copies.
_CONTAINERD_CONFIGURATION = """
version = 2
root = "/var/lib/containerd"
state = "/run/containerd"
[grpc]
  address = "{socket}"
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "lp.local/pause:1"
  restrict_oom_score_adj = true
  disable_apparmor = true
  [plugins."io.containerd.grpc.v1.cri".containerd]
    snapshotter = "native"
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "/usr/lib/cni"
    conf_dir = "/etc/cni/net.d"
[plugins."io.containerd.internal.v1.opt"]
  path = "/var/lib/containerd/opt"
"""

# All hosts have one tree of cgroups. So each kubelet has a folder of its own in it, and makes no groups for
# classes of pods: it would remove those of the others' pods. A lease is renewed in a quarter of its duration.
_KUBELET_CONFIGURATION = """
apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
authentication: {{anonymous: {{enabled: true}}, webhook: {{enabled: false}}}}
authorization: {{mode: AlwaysAllow}}
cgroupDriver: cgroupfs
cgroupRoot: {cgroup}
cgroupsPerQOS: false
enforceNodeAllocatable: []
clusterDNS: ["{dns}"]
clusterDomain: cluster.local
failSwapOn: false
oomScoreAdj: 0
healthzPort: 0
makeIPTablesUtilChains: false
nodeStatusUpdateFrequency: 2s
nodeLeaseDurationSeconds: {noticed_s}
evictionHard: {{memory.available: 100Mi, nodefs.available: 1%, imagefs.available: 1%}}
imageGCHighThresholdPercent: 100
"""


def why_not() -> str:
    """Return why no Kubernetes can be started, or "" if one can."""
    missing = [program for program in _PROGRAMS if shutil.which(program) is None]
    missing += [str(WORK / file) for file in _FILES if not (WORK / file).exists()]
    if missing:
        return (
            f"there is no {', '.join(missing)}: `.ci/cluster build` installs and builds all of it"
        )
    return ""


class Kubernetes:
    """A cluster.

    Attributes:
        network: The hosts.
        control: The host of the control plane.
        nodes: The hosts that run pods.
    """

    def __init__(self, network: Network) -> None:
        self.network = network
        self.control, *self.nodes = network.hosts
        for host in network.hosts:
            self._configure(host)
        self._start_control_plane()
        for node in self.nodes:
            self._start_node(node)
        self._wait_until_all_are_ready()
        self._start_controllers()

    @property
    def api_address(self) -> str:
        """The address of the API server."""
        return self.control.address

    def kubectl(
        self, *arguments: str, check: bool = True, input_text: str = "", timeout_s: float = 60.0
    ) -> str:
        """Run `kubectl` on the host of the control plane, and return what it prints."""
        done = self.control.run(
            ["kubectl", f"--kubeconfig={KUBECONFIG}", *arguments],
            check=check,
            input_text=input_text,
            timeout_s=timeout_s,
        )
        return done.stdout

    def end_api_server(self) -> None:
        """Kill the API server. What runs on the nodes goes on."""
        self._end(self.control, "apiserver")

    def start_api_server(self) -> None:
        """Start the API server, and return once it answers."""
        command = [
            f"{WORK}/bin/kube-apiserver",
            "--etcd-servers=http://127.0.0.1:2379",
            f"--advertise-address={self.api_address}",
            f"--secure-port={PORT}",
            "--insecure-port=0",
            "--kubelet-preferred-address-types=InternalIP",
            "--cert-dir=certs",
            "--token-auth-file=tokens.csv",
            "--authorization-mode=RBAC",
            "--service-cluster-ip-range=10.96.0.0/16",
            "--service-account-key-file=account.pub",
            "--service-account-signing-key-file=account.key",
            "--service-account-issuer=https://kubernetes.default.svc",
            "--feature-gates=TTLAfterFinished=true",
            "--allow-privileged=true",
        ]
        self._start(self.control, "apiserver", command)
        until(lambda: self.kubectl("get", "--raw", "/readyz", check=False) == "ok")

    def restore(self) -> None:
        """Start what doesn't run, and return when all nodes are ready."""
        if not self._runs(self.control, "apiserver"):
            self.start_api_server()
        for node in self.nodes:
            if not self._runs(node, "kubelet"):
                self._start_node(node)
        self._wait_until_all_are_ready()

    def down(self) -> None:
        """End everything, and remove the cgroups of pods."""
        for host in self.network.hosts:
            if host.pid:
                host.kill_all()
                until(lambda host=host: not host.pids())  # type: ignore[misc]
        for node in self.nodes:
            for folder in Path("/sys/fs/cgroup").glob(f"*{_cgroup(node)}"):
                for path, _, _ in os.walk(folder, topdown=False):
                    with contextlib.suppress(FileNotFoundError):
                        os.rmdir(path)

    def _configure(self, host: Host) -> None:
        folder = Path(f"{host.root}{_FOLDER}")
        folder.mkdir(parents=True, exist_ok=True)
        kubeconfig = _KUBECONFIG.format(api=self.api_address, port=PORT, token=_TOKEN)
        (folder / "kubeconfig").write_text(kubeconfig)
        if host is self.control:
            (folder / "tokens.csv").write_text(f"{_TOKEN},admin,admin,system:masters\n")
            self._run(host, "openssl", "genrsa", "-out", "account.key", "2048")
            self._run(
                host, "openssl", "rsa", "-in", "account.key", "-pubout", "-out", "account.pub"
            )
            return
        containerd = _CONTAINERD_CONFIGURATION.format(socket=_CONTAINERD)
        (folder / "containerd.toml").write_text(containerd)
        kubelet = _KUBELET_CONFIGURATION.format(
            cgroup=_cgroup(host), dns=self.control.address, noticed_s=NOTICED_S
        )
        (folder / "kubelet.yaml").write_text(kubelet)
        network = host.root / "etc/cni/net.d"
        network.mkdir(parents=True, exist_ok=True)
        (network / "10-pods.conflist").write_text(json.dumps(_pod_network(host)))

    def _start_control_plane(self) -> None:
        host = self.control
        for node in self.nodes:
            self._add_route(host, node)
        self._start(
            host, "etcd", [f"{WORK}/bin/etcd", "--data-dir=/var/lib/etcd", "--unsafe-no-fsync"]
        )
        self.start_api_server()
        scheduler = [
            f"{WORK}/bin/kube-scheduler",
            "--kubeconfig=kubeconfig",
            "--leader-elect=false",
            "--port=0",
            "--secure-port=0",
        ]
        self._start(host, "scheduler", scheduler)
        self._start(host, "dns", ["python3", f"{WORK}/dns.py", host.address])

    def _start_controllers(self) -> None:
        """Start the controllers. Nodes must be ready.

        Controllers that have seen no ready node at all have stopped evictions. In Kubernetes 1.20, they don't
        begin again.
        """
        controllers = [
            f"{WORK}/bin/kube-controller-manager",
            "--kubeconfig=kubeconfig",
            "--service-account-private-key-file=account.key",
            "--use-service-account-credentials=true",
            "--feature-gates=TTLAfterFinished=true",
            "--leader-elect=false",
            "--port=0",
            "--secure-port=0",
            "--root-ca-file=certs/apiserver.crt",
            f"--node-monitor-grace-period={NOTICED_S}s",
            "--node-monitor-period=1s",
        ]
        self._start(self.control, "controllers", controllers)

    def _start_node(self, node: Host) -> None:
        """Start a node's servers. It is ready somewhat later."""
        self._run(node, "sh", "-c", "echo 1 >/proc/sys/net/ipv4/ip_forward")
        for other in self.nodes:
            if other is not node:
                self._add_route(node, other)
        self._start(node, "containerd", ["containerd", "--config=containerd.toml"])
        ctr = ["ctr", f"--address={_CONTAINERD}", "--namespace=k8s.io"]
        until(lambda: not node.run([*ctr, "version"], check=False).returncode)
        images = [*ctr, "images", "import", "--snapshotter=native", f"{WORK}/images.tar"]
        node.run(images)
        kubelet = [
            f"{WORK}/bin/kubelet",
            "--config=kubelet.yaml",
            "--kubeconfig=kubeconfig",
            "--container-runtime=remote",
            f"--container-runtime-endpoint=unix://{_CONTAINERD}",
            f"--hostname-override={node.name}",
            f"--node-ip={node.address}",
        ]
        self._start(node, "kubelet", kubelet)

    def _start(self, host: Host, name: str, command: list[str]) -> None:
        """Start a server, whose log is /var/log/<name>.log on its host."""
        server = f'cd {_FOLDER} && echo $$ >/run/{name}.pid && exec "$@" >>/var/log/{name}.log 2>&1'
        host.run(["setsid", "--fork", "sh", "-c", server, "sh", *command])

    def _end(self, host: Host, name: str) -> None:
        host.run(["sh", "-c", f"kill -KILL $(cat /run/{name}.pid)"])
        until(lambda: not self._runs(host, name))

    def _runs(self, host: Host, name: str) -> bool:
        # A host that has just booted has nothing in /run.
        done = host.run(["sh", "-c", f"kill -0 $(cat /run/{name}.pid)"], check=False)
        return done.returncode == 0

    def _run(self, host: Host, *command: str) -> None:
        host.run(["sh", "-c", f'cd {_FOLDER} && exec "$@"', "sh", *command])

    def _add_route(self, host: Host, node: Host) -> None:
        """Let what the host sends to the node's pods go to the node."""
        host.run(["ip", "route", "replace", _pods_of(node), "via", node.address])

    def _wait_until_all_are_ready(self) -> None:
        _until(self._are_all_ready, self._report)

    def _are_all_ready(self) -> bool:
        lines = self.kubectl("get", "nodes", "--no-headers", check=False)
        return len(re.findall(r" Ready ", lines)) == len(self.nodes)

    def _report(self) -> str:
        """Return why nodes may not be ready."""
        parts = [self.kubectl("describe", "nodes", check=False)]
        logs = ["sh", "-c", "tail -n 5 /var/log/*.log"]
        parts += [f"{host}:\n{host.run(logs, check=False).stdout}" for host in self.network.hosts]
        return "\n".join(parts)


def _until(condition: Callable[[], bool], report: Callable[[], str]) -> None:
    try:
        until(condition)
    except AssertionError as error:
        raise AssertionError(f"nodes are not ready: {report()}") from error


def _cgroup(node: Host) -> str:
    return f"/launchpad-kubelets-{os.getpid()}-{node.name}"


def _pods_of(node: Host) -> str:
    return f"10.244.{node.cable.number}.0/24"


def _pod_network(node: Host) -> dict[str, object]:
    """Return the configuration of the node's bridge, from which pods get their addresses."""
    ranges = [[{"subnet": _pods_of(node)}]]
    addresses = {"type": "host-local", "ranges": ranges, "routes": [{"dst": "0.0.0.0/0"}]}
    bridge = {
        "type": "bridge",
        "bridge": "pods",
        "isGateway": True,
        "hairpinMode": True,
        "ipam": addresses,
    }
    return {"cniVersion": "0.3.1", "name": "pods", "plugins": [bridge]}
