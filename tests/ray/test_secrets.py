"""A stranger on the host can neither call a worker nor find what would let him.

A stranger has no access to the Ray cluster: whoever has may run code on it anyway.
"""

from __future__ import annotations

import contextlib
import json
import socket
from functools import partial
from pathlib import Path
from typing import Any

import psutil
import pytest

import launchpad as lp
from launchpad.courier import Client, CourierError, keyring
from launchpad.courier.security import certificates
from launchpad.courier.transport import unix
from launchpad.launch.backends.ray import cluster
from tests import nodes
from tests.helpers.leaked_secrets import assert_in_none, files_below, forms_of_secrets, of_processes
from tests.ray.clusters import Cluster
from tests.waiting import pid_of, until

ray = pytest.importorskip("ray")


@pytest.mark.leaks_by_nature  # Ray keeps the connections by which its bookkeeping was read
def test_a_stranger_cannot_call_a_worker_nor_find_its_secrets(ray_cluster: Cluster) -> None:
    program = lp.Program("secret")
    program.add_node(lp.CourierNode(nodes.Counter), label="counter")

    with lp.launch(program, "test_ray") as running:
        running.client("counter").add(1)
        _assert_that_all_are_refused(psutil.Process(pid_of(running, "counter-0")))
        secrets = forms_of_secrets(running)

        assert_in_none("command lines", of_processes("cmdline"), secrets)
        assert_in_none("environments", of_processes("environ"), secrets)
        assert_in_none("logs of Ray", files_below(Path("/tmp/ray")), secrets)
        assert_in_none("logs of the run", files_below(running.log_directory), secrets)
        assert_in_none("the bookkeeping of Ray", _bookkeeping(), secrets)


def _assert_that_all_are_refused(server: psutil.Process) -> None:
    """Not by TLS with another certificate, not in the clear, not by the socket."""
    listening = [c for c in server.net_connections("all") if _listens(c)]
    ports = [c.laddr for c in listening if isinstance(c.laddr, tuple)]
    sockets = [str(c.laddr) for c in listening if isinstance(c.laddr, str) and "/" in c.laddr]
    assert ports
    assert sockets

    for ip, port in ports:
        assert not _answers(f"tcp+plaintext:{ip}:{port}")
        other = f"tcp:{ip}:{port}"
        keyring.add(other, b"x" * 32, certificates.make_credentials())
        assert not _answers(other)
        keyring.remove(other)
    for path in sockets:
        assert Path(path).parent.stat().st_mode & 0o077 == 0
        assert not _answers(unix.PREFIX + path)


def _listens(connection: Any) -> bool:
    return connection.status == psutil.CONN_LISTEN or connection.family == socket.AF_UNIX


def _answers(address: str) -> bool:
    client = Client(address, token=b"x" * 32, call_timeout=5.0, wait_for_ready=False)
    with contextlib.suppress(CourierError, OSError), client:
        client.add(1)
        return True
    return False


def _bookkeeping() -> dict[str, bytes]:
    """What the cluster's head and its dashboard know: tables of actors, tasks, objects, workers; keys."""
    from ray.experimental import internal_kv
    from ray.util import state

    tables: dict[str, bytes] = {}
    for list_all in (state.list_actors, state.list_tasks, state.list_objects, state.list_workers):
        if list_all is not state.list_objects:
            until(partial(list_all, limit=1))  # Ray hears of tasks once a second
        rows = list_all(detail=True, limit=10_000)
        tables[list_all.__name__] = json.dumps([vars(row) for row in rows], default=repr).encode()
    for key in internal_kv._internal_kv_list(""):
        tables[f"key {key!r}"] = internal_kv._internal_kv_get(key) or b""
    tables["timeline"] = json.dumps(cluster.load().timeline(), default=repr).encode()
    return tables
