"""F20, F31–F36, F39, F40, F44 on a real cluster: what pods make of hard cases, of strangers, of a quota."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

import launchpad as lp
from tests.helpers import hostile_peers, pod_nodes, remote_nodes
from tests.kubernetes import namespaces

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("pods_run_this")]

DEADLINE_S = 90.0


def pair(caller: Callable[..., None], *arguments: Any) -> lp.Program:
    """A server, and one that calls it from another pod."""
    program = lp.Program("pair")
    hard = program.add_node(lp.CourierNode(remote_nodes.Hard), label="server")
    program.add_node(lp.PyNode(caller, hard, *arguments), label="pair")
    return program


def test_f31_to_f35_hard_cases_are_the_same_between_pods() -> None:
    running = lp.testing.run(pair(remote_nodes.meet_hard_cases), DEADLINE_S, "test_kubernetes")

    assert "met all hard cases" in running.logs("pair")


def test_f36_a_large_payload_takes_little_more_memory_than_itself_in_both_pods() -> None:
    program = pair(remote_nodes.send_much, 1 << 28)

    running = lp.testing.run(program, DEADLINE_S, "test_kubernetes")

    grown = running.logs("pair").split("grown")[1].split()
    assert len(grown) == 2
    assert max(map(float, grown)) < 2.2


def test_f39_f40_f44_strangers_at_the_port_of_a_pod_do_not_disturb_it() -> None:
    program = lp.Program("apart")
    program.add_node(lp.CourierNode(remote_nodes.Hard), label="hard")

    with lp.launch(program, "test_kubernetes") as running:
        with running.client("hard") as hard:
            assert hard.echo(1) == 1
            hostile_peers.assert_undisturbed(hard)
        running.stop()


@pytest.fixture
def no_more_pods() -> Iterator[None]:
    """A quota of the namespace."""
    with namespaces.quota({"pods": "0"}):
        yield


@pytest.mark.usefixtures("no_more_pods")
def test_f20_where_no_pod_can_be_had_the_quota_is_named() -> None:
    program = lp.Program("refused")
    program.add_node(lp.PyNode(pod_nodes.waits), label="one")

    running = lp.launch(program, "test_kubernetes", pending_timeout_s=3)
    with pytest.raises(lp.ProgramFailed) as refused, running:
        running.wait(DEADLINE_S)

    report = str(refused.value)
    assert "one-0 failed in start (attempt 1): the cluster has made no pod for it in 3 s" in report
    assert "exceeded quota: none-left, requested: pods=1, used: pods=0, limited: pods=0" in report
