"""A real Ray cluster on the hosts of a network: the head is h1, and all hosts are nodes.

The hosts share no home. Ray's token authentication is on, as it is by default where there is a token, so each
host's user has a file with the cluster's token of her own. What the hosts share is a disk for data.
"""

from __future__ import annotations

import importlib.util
import os
import secrets
import shutil
import subprocess
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tests.hosts.host import Host
from tests.hosts.host_process import HostProcess
from tests.hosts.network import Network
from tests.hosts.requirements import ROOT
from tests.hosts.users import UID, add_user, path_on, write_own_file
from tests.waiting import until

USER = "alice"
HOME = Path("/home", USER)
PROJECT = HOME / "project"
TOKEN = HOME / ".ray/auth_token"
PORT = 6379

_RAY = [sys.executable, "-m", "ray.scripts.scripts"]
_START_S = 90.0

# Only what a launch needs, because each further process takes a second of a small machine.
_NODE = [
    "--object-store-memory=100000000",
    "--include-log-monitor=false",
    "--disable-usage-stats",
]
_HEAD = [
    "--head",
    f"--port={PORT}",
    "--labels=is_head=yes",
    "--include-dashboard=false",
    "--no-monitor",
]

N_CPUS = {"h1": 2, "h2": 2, "h3": 8}
"""What each node claims to have. Ray reserves room where most is left, so h3 comes first."""

_VARIABLES = {
    # Without it, Ray doesn't send the token to a cluster whose address was given.
    "RAY_AUTH_MODE": "token",
    # Not this checkout: a worker gets launchpad and the user's code from the launcher.
    "PYTHONPATH": "",
    # By default, all else that runs on this machine comes first.
    "RAY_worker_niceness": "0",
}

# As docs/backends/ray.md advises: Ray gives up a silent node after 5 × (1 + 2) s instead of 65 s.
_HEAD_VARIABLES = {"RAY_health_check_period_ms": "1000", "RAY_health_check_timeout_ms": "2000"}

_LIST_NODES = """
import sys
from ray._raylet import GcsClient
for node in GcsClient(address=sys.argv[1]).get_all_node_info().values():
    if node.state == 0:
        print(node.node_manager_address)
"""


def why_not() -> str:
    """Return why no Ray can be started, or "" if one can."""
    if importlib.util.find_spec("ray") is None:
        return "there is no Ray: the extra `ray` of this project installs it"
    return ""


class RayCluster:
    """A cluster, and its user `alice`, who has a home of her own on each host.

    On h1 and h2, her project is a copy of launchpad and of the examples. h3 doesn't have it.

    Args:
        disk: One of the folders that the network's hosts share. It becomes the user's.

    Attributes:
        address: What `RAY_ADDRESS` is set to.
    """

    def __init__(self, network: Network, disk: Path) -> None:
        self.disk = disk
        self.address = f"{network.hosts[0].address}:{PORT}"
        self._network = network
        self._head = network.hosts[0]
        self._token = secrets.token_hex(32)
        self._daemons: dict[Host, list[int]] = {}
        os.chown(disk, UID, UID)
        for host in network.hosts:
            add_user(host, USER)
            self.write_token(host, self._token)
        for host in network.hosts[:2]:
            self._copy_project(host)
        self._start(network.hosts)

    def launch(
        self,
        *arguments: str,
        host: Host | None = None,
        address: str = "",
        auth_mode: str = "token",
    ) -> HostProcess:
        """Run Python with these arguments in the user's project. `stdout` has its errors, too.

        Args:
            host: The head, unless it is given.
            address: Another one than the cluster's.
            auth_mode: `RAY_AUTH_MODE`; not set if empty.
        """
        variables = {**_VARIABLES, "RAY_ADDRESS": address or self.address}
        del variables["RAY_AUTH_MODE"]
        if auth_mode:
            variables["RAY_AUTH_MODE"] = auth_mode
        go = f'cd {PROJECT} && exec "$@"'
        return (host or self._head).popen(
            ["sh", "-c", go, "sh", sys.executable, "-u", *arguments],
            user=USER,
            env=variables,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )

    def write_token(self, host: Host, token: str) -> None:
        """Give the user this token on a host."""
        write_own_file(host, TOKEN, token)

    def remove_token(self, host: Host) -> None:
        """Take the user's token on a host away."""
        path_on(host, TOKEN).unlink()

    def stop_node(self, host: Host) -> None:
        """End Ray on a host."""
        host.kill_all()
        until(lambda: not host.pids())

    def restore(self) -> None:
        """Give all hosts their token, end all launches, and start nodes that do not run."""
        hosts = self._network.hosts
        for host in hosts:
            self.write_token(host, self._token)
        broken = list(hosts)
        if self._has_all_daemons(self._head):
            # A node that was cut off ends only some time after Ray has given it up.
            alive = self._alive()
            broken = [
                host
                for host in hosts
                if host.address not in alive or not self._has_all_daemons(host)
            ]
        for host in hosts:
            if host not in broken:
                host.kill_all(keep=self._ray_processes(host))
        for host in broken:
            self.stop_node(host)
        self._start(broken)

    def _start(self, hosts: Sequence[Host]) -> None:
        if self._head in hosts:
            self._start_node(self._head, _HEAD, _HEAD_VARIABLES)
        others = [host for host in hosts if host is not self._head]
        options = [f"--address={self.address}"]
        with ThreadPoolExecutor() as pool:
            list(pool.map(lambda host: self._start_node(host, options, {}), others))
        n_hosts = len(self._network.hosts)
        until(lambda: len(self._alive()) == n_hosts)

    def _start_node(self, host: Host, options: Sequence[str], variables: dict[str, str]) -> None:
        # Without its address, Ray asks which way leads to 8.8.8.8, and there is none.
        own = [f"--node-ip-address={host.address}", f"--num-cpus={N_CPUS[host.name]}"]
        command = [*_RAY, "start", *own, *options, *_NODE]
        host.run(command, user=USER, env={**_VARIABLES, **variables}, timeout_s=_START_S)
        self._daemons[host] = host.pids()

    def _has_all_daemons(self, host: Host) -> bool:
        return set(self._daemons[host]) <= set(host.pids())

    def _ray_processes(self, host: Host) -> list[int]:
        """Return the daemons of a host, and the workers that Ray keeps for later."""
        idle = [pid for pid in host.pids() if _command_line(pid).startswith("ray::IDLE")]
        return [*self._daemons[host], *idle]

    def _alive(self) -> set[str]:
        """Return the addresses of the nodes that Ray takes for alive."""
        command = [sys.executable, "-c", _LIST_NODES, self.address]
        return set(self._head.run(command, user=USER, env=_VARIABLES).stdout.split())

    def _copy_project(self, host: Host) -> None:
        folder = path_on(host, PROJECT)
        for package in ("launchpad", "examples"):
            shutil.copytree(
                ROOT / package, folder / package, ignore=shutil.ignore_patterns("__pycache__")
            )
        host.run(["chown", "--recursive", f"{USER}:{USER}", str(PROJECT)])


def _command_line(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_text()
    except OSError:
        return ""
