"""Programs on two nodes, which talk by TLS and share GPUs, and one of which may die.

The GPUs are only said to be there.
"""

from __future__ import annotations

import contextlib
import time
from collections import defaultdict
from collections.abc import Iterator
from typing import Any

import pytest

import launchpad as lp
from launchpad import courier
from launchpad.courier import keyring
from launchpad.launch.backends.ray import placement_group
from tests import nodes
from tests.helpers import gpu_nodes, hostile_peers, remote_nodes
from tests.ray import clusters
from tests.ray.clusters import Cluster
from tests.waiting import until

pytestmark = pytest.mark.slow

DEADLINE_S = 60
APART = lp.Resources(placement="strict_spread")
OFTEN = lp.RestartPolicy(max_restarts=1000, backoff=0)
GROUPS = {"large": 2.0, "one": 1.0, "another": 1.0, "half": 0.5, "other_half": 0.5, "none": 0.0}


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    """Three GPUs on one node, two on the other."""
    pytest.importorskip("ray")
    with clusters.running({"num_cpus": 4, "num_gpus": 3}, {"num_cpus": 4, "num_gpus": 2}) as both:
        yield both


# By TLS.


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


def test_f31_to_f36_hard_cases_and_large_payloads_pass_between_nodes(cluster: Cluster) -> None:
    program = lp.Program("pairs")
    for label, call in (
        ("cases", remote_nodes.meet_hard_cases),
        ("payload", lambda hard: remote_nodes.send_much(hard, 1 << 28)),
    ):
        with program.group(label, resources=APART):
            hard = program.add_node(lp.CourierNode(remote_nodes.Hard))
            program.add_node(lp.PyNode(call, hard))

    running = lp.testing.run(program, DEADLINE_S, "test_ray")

    assert "met all hard cases" in running.logs("cases")
    grown = running.logs("payload").split("grown")[1].split()
    assert len(grown) == 2
    assert max(map(float, grown)) < 2.2


def test_f39_f40_f44_strangers_at_the_port_of_a_worker_do_not_disturb_it(cluster: Cluster) -> None:
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

        hostile_peers.assert_undisturbed(far)


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


def test_f28_clients_find_a_server_whose_node_was_killed_on_another(cluster: Cluster) -> None:
    doomed = cluster.add(num_cpus=0, num_gpus=4)
    program = lp.Program("moves")
    with program.group("server", resources=lp.Resources(gpus=4), restart=OFTEN):
        server = program.add_node(lp.CourierNode(Where))
    with program.group("caller", resources=lp.Resources(cpus=1)):
        program.add_node(lp.PyNode(call_until_it_has_moved, server))

    with lp.launch(program, "test_ray") as running:
        until(lambda: "reached attempt 1" in running.logs("caller"))
        spare = cluster.add(num_cpus=0, num_gpus=4)
        cluster.kill(doomed)
        running.wait(DEADLINE_S, labels=["caller"])
    cluster.kill(spare)

    assert "reached attempt 2" in running.logs("caller")
    assert "all different: True" in running.logs("caller")
    assert [s.attempt for s in running.status() if s.label == "server"] == [2]


# GPUs: who gets which, and what is refused.


def with_gpus(groups: dict[str, float]) -> lp.Program:
    program = lp.Program("gpus")
    for label, gpus in groups.items():
        with program.group(label, resources=lp.Resources(gpus=gpus)):
            program.add_node(lp.CourierNode(gpu_nodes.Sees))
    return program


def node_id(running: lp.Running, label: str) -> str:
    """The Ray node that a worker is on; those of this test have one address."""
    handles = running._runner.workers._handles  # type: ignore[attr-defined]
    return str(handles[f"{label}-0"].ready.node)


@pytest.mark.leaks_by_nature  # Ray keeps the connection by which it first reserved room
def test_gpus_are_given_disjointly_before_imports_and_again(cluster: Cluster) -> None:
    policy = {"one": lp.RestartPolicy(max_restarts=1)}
    with lp.launch(with_gpus(GROUPS), "test_ray", restart=policy) as running:
        seen = {label: running.client(label).devices() for label in GROUPS}
        node_of = {label: node_id(running, label) for label in GROUPS}
        with lp.testing.KillWorkers(running, ["one"], at_most=1) as kills:
            until(lambda: kills.done)
        after = lp.with_options(running.client("one"), idempotent=True).devices()

    whole: dict[tuple[str, str], float] = defaultdict(float)
    for label, (visible, gpus) in seen.items():
        assert visible == ",".join(gpus), label
        assert len(set(gpus)) == {2.0: 2, 0.0: 0}.get(GROUPS[label], 1), label
        for gpu in gpus:
            whole[node_of[label], gpu] += min(GROUPS[label], 1.0)
    assert seen["none"][0] == ""
    assert sorted(whole.values()) == [1.0] * 5, whole
    assert after == seen["one"]


def test_a_program_that_can_never_fit_is_refused_at_once_with_the_reason(cluster: Cluster) -> None:
    choosy = lp.Program("labels")
    with choosy.group("counter", resources=lp.Resources(cpus=1, labels={"zone": "nowhere"})):
        choosy.add_node(lp.CourierNode(nodes.Counter))
    arithmetic = r"learner 1×2 \+ actor 1×3 \+ extra 1×1 = 6 GPU, and the cluster has 5: "

    with pytest.raises(lp.LaunchError, match=arithmetic):
        lp.launch(with_gpus({"learner": 2.0, "actor": 3.0, "extra": 1.0}), "test_ray")
    with pytest.raises(lp.LaunchError, match="no node has the labels that counter wants, zone=no"):
        lp.launch(choosy, "test_ray")


def test_programs_share_a_cluster_and_no_gpu_and_what_is_not_free_is_waited_for_and_then_named(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(placement_group, "PENDING_S", 1.0)
    with (
        lp.launch(with_gpus({"a": 1.0, "b": 2.0}), "test_ray") as first,
        lp.launch(with_gpus({"c": 1.0}), "test_ray") as second,
    ):
        assert first.client("b").devices()
        mine = first.client("a").devices(), node_id(first, "a")
        theirs = second.client("c").devices(), node_id(second, "c")
        assert mine != theirs

        with pytest.raises(lp.ProgramFailed, match=r"no room .* asks for 2 GPU \(of 5.* 1 is free"):
            lp.launch(with_gpus({"late": 2.0}), "test_ray").wait(timeout_s=30.0)


@pytest.mark.parametrize("gpus", [0.0, 1.0])
def test_row_03_a_launch_in_which_no_worker_gets_a_gpu_says_so(
    cluster: Cluster, capsys: pytest.CaptureFixture[str], gpus: float
) -> None:
    only = lp.Program("gpus")
    with only.group("a", resources=lp.Resources(gpus=gpus)):
        only.add_node(lp.PyNode(nodes.print_many, 1))

    lp.launch(only, "ray").wait(60)

    said = "no worker is given a GPU, and the cluster has 5: " in capsys.readouterr().out
    assert said == (gpus == 0)
