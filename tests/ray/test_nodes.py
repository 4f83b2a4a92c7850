"""F28, F31–F36, F39, F40, F44: programs on several nodes, which talk by TLS, and one of which may die."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import launchpad as lp
from examples.mapreduce import program as mapreduce
from launchpad import courier
from launchpad.courier import keyring
from tests import nodes
from tests.helpers import hostile_peers, remote_nodes
from tests.ray import clusters
from tests.ray.clusters import Cluster
from tests.waiting import until

pytestmark = pytest.mark.slow

DEADLINE_S = 60
APART = lp.Resources(placement="strict_spread")
OFTEN = lp.RestartPolicy(max_restarts=1000, backoff=0)


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    """Two nodes."""
    pytest.importorskip("ray")
    with clusters.running({"num_cpus": 2}, {"num_cpus": 2}) as running:
        yield running


def test_workers_are_spread_and_find_each_other_by_tls_across_nodes(cluster: Cluster) -> None:
    program = lp.Program("spread")
    peers = [lp.CourierNode(remote_nodes.Peer) for _ in range(2)]
    for peer in peers:
        peer.configure([other.create_handle() for other in peers])
    with program.group("peer", resources=APART):
        for peer in peers:
            program.add_node(peer)

    with lp.launch(program, "test_ray") as running:
        found = [running.client("peer", i).addresses() for i in range(2)]

    schemes = [[address.partition(":")[0] for address in seen] for seen in found]
    assert schemes == [["unix", "tcp"], ["tcp", "unix"]]
    assert {keyring.find_credentials(address) for seen in found for address in seen} == {None}


def pair(caller: Callable[..., None], *arguments: Any) -> lp.Program:
    """A server and one that calls it from another node."""
    program = lp.Program("pair")
    with program.group("pair", resources=APART):
        hard = program.add_node(lp.CourierNode(remote_nodes.Hard))
        program.add_node(lp.PyNode(caller, hard, *arguments))
    return program


def test_f31_to_f35_hard_cases_are_the_same_across_nodes(cluster: Cluster) -> None:
    running = lp.testing.run(pair(remote_nodes.meet_hard_cases), DEADLINE_S, "test_ray")

    assert "met all hard cases" in running.logs("pair")


def test_f36_a_large_payload_takes_little_more_memory_than_itself_on_both_nodes(
    cluster: Cluster,
) -> None:
    size = 1 << 28

    running = lp.testing.run(pair(remote_nodes.send_much, size), DEADLINE_S, "test_ray")

    grown = running.logs("pair").split("grown")[1].split()
    assert len(grown) == 2
    assert max(map(float, grown)) < 2.2


@pytest.fixture
def hard(cluster: Cluster) -> Iterator[Any]:
    """A client of a server on the other node."""
    program = lp.Program("apart")
    with program.group("hard", resources=APART):
        for _ in range(2):
            program.add_node(lp.CourierNode(remote_nodes.Hard))
    with (
        lp.launch(program, "test_ray") as running,
        running.client("hard", 0) as first,
        running.client("hard", 1) as second,
    ):
        clients: list[Any] = [first, second]
        assert [client.echo(1) for client in clients] == [1, 1]
        (far,) = [client for client in clients if client.address.startswith("tcp:")]
        yield far


def test_f39_f40_f44_strangers_at_the_port_of_a_worker_do_not_disturb_it(hard: Any) -> None:
    hostile_peers.assert_undisturbed(hard)


# A node dies.


class Where(nodes.Counter):
    """Says on which attempt it is."""

    def attempt(self) -> int:
        return lp.current().attempt


def call_until_it_has_moved(server: Any) -> None:
    """Calls from before the death of the server's node until after it."""
    found = {}
    while len(found) < 2:
        with contextlib.suppress(courier.CourierError):
            attempt = lp.with_options(server, timeout_s=DEADLINE_S).attempt()
            found[attempt] = server.address
            print("reached attempt", attempt, flush=True)
            time.sleep(0.1)
    print("all different:", len(set(found.values())) == 2)


def test_f28_the_node_of_a_server_is_killed_and_its_clients_find_it_on_another(
    cluster: Cluster,
) -> None:
    doomed = cluster.add(num_cpus=0, num_gpus=1)
    program = lp.Program("moves")
    with program.group("server", resources=lp.Resources(gpus=1), restart=OFTEN):
        server = program.add_node(lp.CourierNode(Where))
    with program.group("caller", resources=lp.Resources(cpus=1)):
        program.add_node(lp.PyNode(call_until_it_has_moved, server))

    with lp.launch(program, "test_ray") as running:
        until(lambda: "reached attempt 1" in running.logs("caller"))
        spare = cluster.add(num_cpus=0, num_gpus=1)
        cluster.kill(doomed)
        running.wait(DEADLINE_S, labels=["caller"])
    cluster.kill(spare)

    assert "reached attempt 2" in running.logs("caller")
    assert "all different: True" in running.logs("caller")
    assert [s.attempt for s in running.status() if s.label == "server"] == [2]


def test_mapreduce_counts_exactly_although_a_node_is_killed(cluster: Cluster) -> None:
    doomed = cluster.add(num_cpus=0, num_gpus=1)
    texts = sorted(Path(contextlib.__file__).parent.glob("*.py")) * 5
    program = mapreduce.make_program(texts, mappers=2, reducers=1)
    placed = dict.fromkeys(["mapper", "reducer"], lp.Resources(gpus=0.1))
    placed["coordinator"] = lp.Resources(cpus=1)

    with lp.launch(program, "test_ray", resources=placed) as running:
        until(lambda: {s.state for s in running.status()} == {"running"})
        until(lambda: "% of" in running.logs("coordinator"))
        cluster.kill(doomed)  # at once: a quick machine may count all before another node is up
        spare = cluster.add(num_cpus=0, num_gpus=1)
        running.wait(DEADLINE_S)
    cluster.kill(spare)

    assert "the counts agree" in running.logs("coordinator")
    assert {s.attempt for s in running.status() if s.label != "coordinator"} == {2}
