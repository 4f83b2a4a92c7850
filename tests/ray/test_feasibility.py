"""Whether a cluster can hold a program: arithmetic alone, no Ray needed."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from launchpad.launch.backends.ray.cluster import ClusterNode
from launchpad.launch.backends.ray.feasibility import refusal
from launchpad.launch.backends.ray.placement_group import BundleGroup


def group(name: str, *asked: float, resource: str = "GPU", strategy: str = "PACK") -> BundleGroup:
    """Workers that ask for so much each."""
    workers = tuple(f"{name}-{i}" for i in range(len(asked)))
    return BundleGroup(name, strategy, workers, tuple({resource: much} for much in asked), {})


def cluster(*gpus: float) -> list[ClusterNode]:
    """Nodes with so many GPUs each."""
    return [ClusterNode(str(i), f"10.0.0.{i}", {"GPU": n, "CPU": 4.0}) for i, n in enumerate(gpus)]


def test_what_fits_is_not_refused() -> None:
    groups = [group("learner", 2.0), group("actor", 1.0, 0.5, 0.5)]

    assert refusal(groups, cluster(2, 2)) == ""


def test_too_much_in_all_is_refused_with_the_sum() -> None:
    groups = [group("learner", 4.0, 4.0), group("actor", *[0.25] * 8)]

    why = refusal(groups, cluster(4, 4))

    assert why == (
        "learner 2×4 + actor 8×0.25 = 10 GPU, and the cluster has 8: 4 on 10.0.0.0, 4 on 10.0.0.1"
    )


def test_a_worker_larger_than_any_node_is_refused_by_name() -> None:
    why = refusal([group("learner", 4.0)], cluster(2, 2))

    assert why == (
        "learner-0 asks for 4 GPU on one node, and the cluster has 4: 2 on 10.0.0.0, 2 on 10.0.0.1"
    )


def test_processes_that_must_be_together_are_added_up() -> None:
    why = refusal([group("pair", 1.0, 1.0, strategy="STRICT_PACK")], cluster(1, 1))

    assert why.startswith("pair asks for 2 GPU on one node")


def test_enough_in_all_that_cannot_be_divided_is_refused() -> None:
    why = refusal([group("learner", 2.0, 2.0)], cluster(3, 1))

    assert why == (
        "no way to divide the workers over the nodes: learner-0 2 GPU, learner-1 2 GPU; the cluster has"
        " 10.0.0.0 3 GPU and 4 CPU, 10.0.0.1 1 GPU and 4 CPU"
    )


def test_what_takes_too_long_to_divide_is_left_to_ray() -> None:
    groups = [group("learner", *[1.1 + i / 1000 for i in range(15)])]  # two fit on no node

    assert refusal(groups, cluster(*[2.0 + i / 1000 for i in range(14)])) == ""


def test_thousands_of_workers_can_be_divided() -> None:
    assert refusal([group("actor", *[0.001] * 3000)], cluster(1, 2, 3)) == ""


def test_workers_that_want_a_node_each_are_refused_when_there_are_fewer() -> None:
    why = refusal([group("shard", 1.0, 1.0, 1.0, strategy="STRICT_SPREAD")], cluster(2, 2))

    assert why == "shard has 3 workers that want a node each, and the cluster has 2"


def test_labels_that_no_node_has_are_named() -> None:
    choosy = BundleGroup("learner", "PACK", ("learner-0",), ({"GPU": 1.0},), {"zone": "b"})
    nodes = [ClusterNode("0", "10.0.0.1", {"GPU": 1.0}, {"zone": "a", "ray.io/node-id": "0"})]

    assert refusal([choosy], nodes) == (
        "no node has the labels that learner wants, zone=b; there are: 10.0.0.1 {'zone': 'a'}"
    )


def test_memory_is_given_in_gib() -> None:
    nodes = [ClusterNode("0", "10.0.0.1", {"memory": 8.0 * 2**30})]

    why = refusal([group("learner", 12.0 * 2**30, resource="memory")], nodes)

    assert why == "learner 1×12 = 12 GiB of memory, and the cluster has 8: 8 on 10.0.0.1"


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
