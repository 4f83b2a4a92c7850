"""A Ray cluster of one or more nodes on this machine, for tests.

    test ── lifeline: commands, answers ──▶ this file as a script, in a session of its own ── raylets …

Not a child of the test's process, since workers that Ray keeps for later are nothing that a test has left
behind. It ends with the lifeline, however the test does.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from launchpad.launch.backends.ray import cluster as connection
from tests.waiting import until

ROOT = Path(__file__).parents[2]

_SETTINGS = {
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_worker_niceness": "0",  # by default all else that runs on this machine comes first
}


class Cluster:
    """The nodes: `{"num_cpus": 1, "num_gpus": 2}` for each, the first is the head."""

    def __init__(self, nodes: Sequence[dict[str, Any]]) -> None:
        ours, theirs = socket.socketpair()
        env = {**os.environ, "PYTHONPATH": str(ROOT), **_SETTINGS}
        env.pop("LAUNCHPAD_RUNTIME_DIR", None)  # that is of this process, as on a cluster of hosts
        with theirs:
            starter = subprocess.Popen(
                [sys.executable, __file__, str(theirs.fileno()), json.dumps(list(nodes))],
                pass_fds=[theirs.fileno()],
                start_new_session=True,
                env=env,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
            )
        starter.wait()  # it has forked
        self._lifeline = ours.makefile("rw")
        ours.close()
        self.address = self._ask()["address"]

    def add(self, **resources: Any) -> str:
        """One more node; its id."""
        return str(self._ask("add", resources)["id"])

    def kill(self, node: str) -> None:
        """Ends the node with this id by SIGKILL; returns when Ray knows, and so places nothing there."""
        self._ask("kill", node)
        until(lambda: node not in [living.id for living in connection.nodes()])

    def ids(self) -> list[str]:
        """Of the nodes that live, the head's first."""
        return list(self._ask("ids")["ids"])

    def close(self) -> None:
        """Ends it; returns when nothing of it runs."""
        self._ask("close")
        self._lifeline.close()

    def _ask(self, *message: Any) -> dict[str, Any]:
        if message:
            self._lifeline.write(json.dumps(message) + "\n")
            self._lifeline.flush()
        line = self._lifeline.readline()
        assert line, "the cluster's process has died"
        return dict(json.loads(line))


@contextlib.contextmanager
def running(*nodes: dict[str, Any]) -> Iterator[Cluster]:
    """A cluster for a block, as the one that $RAY_ADDRESS names; this process is connected to it.

    A connection to another cluster, which tests share, is closed before and opened again. Ours has been used
    once, since Ray leaves descriptors open then.
    """
    cluster = Cluster(nodes)
    with _disconnected(), pytest.MonkeyPatch.context() as patch:
        patch.setenv("RAY_ADDRESS", cluster.address)
        connection.connect()
        _visit_all_nodes()
        try:
            yield cluster
        finally:
            connection.release()
            cluster.close()


class _Client:
    def bring(self) -> bytes:
        """So much that it goes by way of Ray's store."""
        return bytes(1 << 20)


def _visit_all_nodes() -> None:
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy as At

    ray = connection.load()
    client = ray.remote(_Client).options
    places = [At(node_id=node.id, soft=False) for node in connection.nodes()]
    clients = [client(num_cpus=0, scheduling_strategy=at).remote() for at in places]
    ray.get([each.bring.remote() for each in clients])
    for each in clients:
        ray.kill(each)


@contextlib.contextmanager
def _disconnected() -> Iterator[None]:
    users, connection._users = connection._users, 1
    if users:
        connection.release()
    connection._users = 0
    try:
        yield
    finally:
        for _ in range(users):
            connection.connect()
        if users:
            _visit_all_nodes()


def _serve(fd: int, nodes: list[dict[str, Any]]) -> None:
    """What the cluster's process does."""
    from ray.cluster_utils import Cluster as RayCluster

    head, *others = nodes
    settings = {
        "include_dashboard": False,
        "object_store_memory": 100 << 20,
        "_system_config": {"health_check_period_ms": 500},  # the death of a node is noticed in 3 s
    }
    cluster = RayCluster(initialize_head=True, head_node_args={**settings, **head})
    for node in others:
        cluster.add_node(object_store_memory=100 << 20, **node)
    with socket.socket(fileno=fd) as sock, sock.makefile("rw") as lifeline:
        _answer(lifeline, address=cluster.address)
        with contextlib.suppress(OSError, ValueError):
            while message := json.loads(lifeline.readline() or "null"):
                _obey(cluster, lifeline, *message)


def _obey(cluster: Any, lifeline: Any, command: str, given: Any = None) -> None:
    living = {node.node_id: node for node in cluster.list_all_nodes()}
    if command == "add":
        _answer(lifeline, id=cluster.add_node(object_store_memory=100 << 20, **given).node_id)
    elif command == "kill":
        cluster.remove_node(living[given], allow_graceful=False)
        _answer(lifeline)
    elif command == "ids":
        _answer(lifeline, ids=list(living))
    elif command == "close":
        cluster.shutdown()
        _answer(lifeline)
        raise OSError("closed")


def _answer(lifeline: Any, **answer: Any) -> None:
    lifeline.write(json.dumps(answer) + "\n")
    lifeline.flush()


if __name__ == "__main__":
    if os.fork():
        os._exit(0)
    try:
        _serve(int(sys.argv[1]), json.loads(sys.argv[2]))
    finally:
        import atexit

        atexit._run_exitfuncs()  # Ray's own: they end its processes
        os._exit(0)
