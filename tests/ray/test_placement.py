"""What fits on a cluster, what is placed together, and where servers are then. Pure: no Ray needed."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

import launchpad as lp
from launchpad.launch.backends.address_table import AddressTable
from launchpad.launch.backends.ray.cluster import ClusterNode
from launchpad.launch.backends.ray.feasibility import refusal
from launchpad.launch.backends.ray.placement_group import (
    BundleGroup,
    bundle_groups_of,
    spread_options,
)
from tests import nodes

# Whether a cluster can hold a program: arithmetic alone.


def group(name: str, *asked: float, resource: str = "GPU", strategy: str = "PACK") -> BundleGroup:
    """Workers that ask for so much each."""
    workers = tuple(f"{name}-{i}" for i in range(len(asked)))
    return BundleGroup(name, strategy, workers, tuple({resource: much} for much in asked), {})


def cluster(*gpus: float) -> list[ClusterNode]:
    """Nodes with so many GPUs each."""
    return [ClusterNode(str(i), f"10.0.0.{i}", {"GPU": n, "CPU": 4.0}) for i, n in enumerate(gpus)]


@pytest.mark.parametrize(
    ("groups", "nodes", "why"),
    [
        ([group("learner", 2.0), group("actor", 1.0, 0.5, 0.5)], cluster(2, 2), ""),
        ([group("actor", *[0.001] * 3000)], cluster(1, 2, 3), ""),
        (
            [group("learner", 4.0, 4.0), group("actor", *[0.25] * 8)],
            cluster(4, 4),
            "learner 2×4 + actor 8×0.25 = 10 GPU, and the cluster has 8: 4 on 10.0.0.0, 4 on 10.0.0.1",
        ),
        (
            [group("learner", 4.0)],
            cluster(2, 2),
            "learner-0 asks for 4 GPU on one node, and the cluster has 4: 2 on 10.0.0.0, 2 on 10.0.0.1",
        ),
        (
            [group("pair", 1.0, 1.0, strategy="STRICT_PACK")],
            cluster(1, 1),
            "pair asks for 2 GPU on one node, and the cluster has 2: 1 on 10.0.0.0, 1 on 10.0.0.1",
        ),
        (
            [group("learner", 2.0, 2.0)],
            cluster(3, 1),
            "no way to divide the workers over the nodes: learner-0 2 GPU, learner-1 2 GPU; the cluster"
            " has 10.0.0.0 3 GPU and 4 CPU, 10.0.0.1 1 GPU and 4 CPU",
        ),
        (
            [group("shard", 1.0, 1.0, 1.0, strategy="STRICT_SPREAD")],
            cluster(2, 2),
            "shard has 3 workers that want a node each, and the cluster has 2",
        ),
        (
            [group("learner", 12.0 * 2**30, resource="memory")],
            [ClusterNode("0", "10.0.0.1", {"memory": 8.0 * 2**30})],
            "learner 1×12 GiB = 12 GiB of memory, and the cluster has 8 GiB: 8 GiB on 10.0.0.1",
        ),
        (
            [BundleGroup("learner", "PACK", ("learner-0",), ({"GPU": 1.0},), {"zone": "b"})],
            [ClusterNode("0", "10.0.0.1", {"GPU": 1.0}, {"zone": "a", "ray.io/node-id": "0"})],
            "no node has the labels that learner wants, zone=b; there are: 10.0.0.1 {'zone': 'a'}",
        ),
        # Two fit on no node, but to find out takes too long: it is left to Ray.
        (
            [group("learner", *[1.1 + i / 1000 for i in range(15)])],
            cluster(*[2.0 + i / 1000 for i in range(14)]),
            "",
        ),
    ],
)
def test_what_does_not_fit_is_refused_with_the_arithmetic(
    groups: list[BundleGroup], nodes: list[ClusterNode], why: str
) -> None:
    assert refusal(groups, nodes) == why


def test_a_kind_of_gpu_that_no_node_has_is_refused() -> None:
    why = refusal([group("learner", 0.001, resource="accelerator_type:A100")], cluster(8))

    assert "accelerator_type:A100" in why


@given(
    asked=st.lists(st.sampled_from([0.25, 0.5, 1.0, 2.0]), min_size=1, max_size=5),
    has=st.lists(st.sampled_from([0.0, 1.0, 2.0, 3.0]), min_size=1, max_size=3),
)
def test_it_is_refused_exactly_when_no_division_works(asked: list[float], has: list[float]) -> None:
    refused = bool(refusal([group("worker", *asked)], cluster(*has)))

    assert refused is not _can_be_divided(asked, has)


def _can_be_divided(asked: Sequence[float], has: Sequence[float]) -> bool:
    """All ways, one after the other."""
    for choice in itertools.product(range(len(has)), repeat=len(asked)):
        loads = [
            sum(much for much, at in zip(asked, choice, strict=True) if at == node)
            for node in range(len(has))
        ]
        if all(load <= limit for load, limit in zip(loads, has, strict=True)):
            return True
    return False


# Which workers are placed together.


def groups(program: lp.Program) -> list[BundleGroup]:
    return bundle_groups_of(lp.plan(program, "ray").workers)


def test_workers_that_ask_for_nothing_belong_to_no_group() -> None:
    program = lp.Program("p")
    program.add_node(lp.CourierNode(nodes.Counter), label="counter")

    assert groups(program) == []


def test_a_group_that_asks_is_one_bundle_group_with_a_bundle_for_each_worker() -> None:
    program = lp.Program("p")
    with program.group("learner", resources=lp.Resources(cpus=2, gpus=0.5, memory="1GiB")):
        for _ in range(2):
            program.add_node(lp.CourierNode(nodes.Counter))

    (group,) = groups(program)

    assert group.workers == ("learner-0", "learner-1")
    assert group.strategy == "PACK"
    assert group.bundles == ({"CPU": 2.0, "GPU": 0.5, "memory": 2.0**30},) * 2


def test_the_processes_of_a_colocation_are_a_group_on_one_node() -> None:
    program = lp.Program("p")
    pair = [lp.CourierNode(nodes.Counter), lp.CourierNode(nodes.Counter)]
    program.add_node(lp.MultiProcessingColocation(pair), label="pair")

    (group,) = groups(program)

    assert group.strategy == "STRICT_PACK"
    assert group.workers == ("pair-0.0", "pair-0.1")


def test_a_kind_of_gpu_labels_and_a_placement_are_asked_for() -> None:
    program = lp.Program("p")
    wanted = lp.Resources(
        gpus=1, accelerator="A100", labels={"zone": "a"}, placement="strict_spread"
    )
    with program.group("learner", resources=wanted):
        program.add_node(lp.CourierNode(nodes.Counter))

    (group,) = groups(program)

    assert group.bundles[0]["accelerator_type:A100"] > 0
    assert group.labels == {"zone": "a"}
    assert group.strategy == "STRICT_SPREAD"


def test_a_worker_that_asks_for_nothing_avoids_nodes_that_do_not_answer() -> None:
    options = spread_options({"b", "d"}, ["a", "b", "c"])

    assert options["label_selector"] == {"ray.io/node-id": "!in(b)"}


@pytest.mark.parametrize("avoid", [set(), {"gone"}, {"a", "b"}])
def test_a_worker_may_be_on_any_node_if_all_answer_or_none_does(avoid: set[str]) -> None:
    assert "label_selector" not in spread_options(avoid, ["a", "b"])


# Where servers are, and how each node reaches them.


def test_a_server_is_reached_by_its_socket_on_its_node_and_by_tls_from_others() -> None:
    places = AddressTable()

    places.bind("ps-0/courier", "node a", ("unix:/run/ps", "tcp:10.0.0.1:7"))

    places.bind("ps-0/board", "node a", ("10.0.0.1:8",))

    board = {"ps-0/board": "10.0.0.1:8"}
    assert places.seen_from("node a") == {"ps-0/courier": "unix:/run/ps", **board}
    assert places.seen_from("node b") == {"ps-0/courier": "tcp:10.0.0.1:7", **board}


def test_a_worker_that_has_ended_is_nowhere_until_it_binds_again() -> None:
    places = AddressTable()
    places.bind("ps-0/courier", "node a", ("unix:/run/ps", "tcp:10.0.0.1:7"))
    places.bind("ps-01/courier", "node a", ("unix:/run/other", "tcp:10.0.0.1:8"))

    lost = places.withdraw("ps-0")

    assert lost == ["ps-0/courier"]
    assert places.seen_from("node b", lost) == {"ps-0/courier": ""}
    assert places.seen_from("node b") == {"ps-01/courier": "tcp:10.0.0.1:8"}

    places.bind("ps-0/courier", "node b", ("unix:/run/ps", "tcp:10.0.0.2:9"))

    assert places.seen_from("node a", lost) == {"ps-0/courier": "tcp:10.0.0.2:9"}
