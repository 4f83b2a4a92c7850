"""The choice of a node for each worker, without any nodes."""

from __future__ import annotations

import re

import pytest

import launchpad as lp
from launchpad.launch.backends.remote.placement import NodeSupply, Room, indivisible
from launchpad.launch.devices.device import Device
from launchpad.launch.plan import WorkerPlan

GPUS = tuple(Device(i, f"GPU-{i}", "A100") for i in range(2))
GIB = 1 << 30


def workers(*groups: tuple[str, int, lp.Resources]) -> tuple[WorkerPlan, ...]:
    """Return workers of these groups: name, number of replicas, resources."""
    program = lp.Program("placed")
    for name, n, resources in groups:
        with program.group(name, resources=resources):
            for _ in range(n):
                program.add_node(lp.PyNode(print))
    return lp.plan(program, "ssh", hosts=["h1"]).workers


def room(*nodes: str, cpus: float = 4, devices: tuple[Device, ...] = ()) -> Room:
    made = Room()
    for node in nodes:
        made.add(node, NodeSupply(cpus, 8 * GIB, devices))
    return made


def nodes_of(room: Room, placed: tuple[WorkerPlan, ...]) -> list[str]:
    places = [room.place_of(worker.name) for worker in placed]
    return [place.node if place is not None else "" for place in places]


def test_workers_that_ask_for_nothing_are_spread_by_the_cpus_of_the_nodes() -> None:
    both = Room()
    both.add("small", NodeSupply(1, GIB))
    both.add("large", NodeSupply(3, GIB))
    four = workers(("actor", 4, lp.Resources()))

    both.place_all(four)

    assert sorted(nodes_of(both, four)) == ["large", "large", "large", "small"]


def test_no_node_is_given_more_than_it_has() -> None:
    two = room("h1", "h2")
    placed = workers(("small", 2, lp.Resources(cpus=1)), ("large", 2, lp.Resources(cpus=3)))

    two.place_all(placed)

    assert sorted(nodes_of(two, placed)) == ["h1", "h1", "h2", "h2"]
    assert not two.place(workers(("late", 1, lp.Resources(cpus=1))))


def test_gpus_belong_to_one_worker_and_shares_to_several() -> None:
    one = room("h1", devices=GPUS)
    placed = workers(("learner", 1, lp.Resources(gpus=1)), ("actor", 2, lp.Resources(gpus=0.5)))

    one.place_all(placed)

    learner, *actors = (place.gpus for w in placed if (place := one.place_of(w.name)) is not None)
    assert actors[0] == actors[1] != learner


@pytest.mark.parametrize(
    ("placement", "expected"),
    [
        ("strict_pack", ["h1", "h1"]),
        ("strict_spread", ["h1", "h2"]),
        ("pack", ["h1", "h1"]),
        ("spread", ["h1", "h2"]),
    ],
)
def test_a_group_is_placed_as_it_wants(placement: str, expected: list[str]) -> None:
    two = room("h1", "h2")
    pair = workers(("pair", 2, lp.Resources(placement=placement)))

    two.place_all(pair)

    assert sorted(nodes_of(two, pair)) == expected


def test_a_worker_that_is_over_gives_back_all_that_it_had() -> None:
    one = room("h1", devices=GPUS)
    asks = lp.Resources(cpus=4, memory="8GiB", gpus=2, placement="strict_spread")
    first, second = workers(("worker", 2, asks))
    assert one.place([first])
    assert not one.place([second])

    one.release(first.name)

    assert one.place([second])
    assert nodes_of(one, (first, second)) == ["", "h1"]


def test_a_process_of_a_colocation_that_is_placed_again_goes_to_the_others() -> None:
    program = lp.Program("placed")
    parts = [lp.PyNode(print), lp.PyNode(print)]
    program.add_node(lp.MultiProcessingColocation(parts), label="both")
    both = lp.plan(program, "ssh", hosts=["h1"]).workers
    two = room("h1", "h2")
    two.place_all(both)
    before = nodes_of(two, both)

    two.release(both[0].name)
    assert two.place(both[:1])

    assert nodes_of(two, both) == before


def test_a_group_that_wants_one_node_is_placed_on_another_one_together() -> None:
    nodes = room("h1", cpus=2)
    nodes.add("h2", NodeSupply(1, GIB))
    pair = workers(("pair", 2, lp.Resources(cpus=1, placement="strict_pack")))
    nodes.place_all(pair)
    nodes.add("h3", NodeSupply(2, GIB))

    nodes.remove("h1")
    (unit,) = indivisible(pair)
    assert nodes.place(unit)

    assert nodes_of(nodes, pair) == ["h3", "h3"]


@pytest.mark.parametrize(
    ("resources", "why"),
    [
        (lp.Resources(cpus=3), "worker 3×3 CPUs = 9, and the hosts have 8: h1 4 CPUs, 8 GiB; h2"),
        (lp.Resources(gpus=1), "worker 3×1 GPU = 3, and the hosts have 0"),
        (lp.Resources(memory="5GiB"), "no host has room for worker-2 (5 GiB): h1 has 4 CPU"),
        (lp.Resources(placement="strict_spread"), "no host has room for worker-2 (strict_spread)"),
    ],
    ids=lambda value: str(value)[:40],
)
def test_what_does_not_fit_is_refused_with_the_arithmetic(
    resources: lp.Resources, why: str
) -> None:
    with pytest.raises(ValueError, match=re.escape(why)):
        room("h1", "h2").place_all(workers(("worker", 3, resources)))
