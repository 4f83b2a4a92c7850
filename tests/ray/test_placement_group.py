"""Which workers are placed together: pure, no Ray needed."""

from __future__ import annotations

import launchpad as lp
from launchpad.launch.backends.ray.placement_group import BundleGroup, bundle_groups_of
from tests import nodes


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


def test_a_group_says_how_it_is_placed() -> None:
    program = lp.Program("p")
    with program.group("shard", resources=lp.Resources(cpus=1, placement="strict_spread")):
        program.add_node(lp.CourierNode(nodes.Counter))

    assert groups(program)[0].strategy == "STRICT_SPREAD"


def test_the_processes_of_a_colocation_are_a_group_on_one_node() -> None:
    program = lp.Program("p")
    pair = [lp.CourierNode(nodes.Counter), lp.CourierNode(nodes.Counter)]
    program.add_node(lp.MultiProcessingColocation(pair), label="pair")

    (group,) = groups(program)

    assert group.strategy == "STRICT_PACK"
    assert group.workers == ("pair-0.0", "pair-0.1")


def test_a_kind_of_gpu_and_labels_are_asked_for() -> None:
    program = lp.Program("p")
    wanted = lp.Resources(gpus=1, accelerator="A100", labels={"zone": "a"})
    with program.group("learner", resources=wanted):
        program.add_node(lp.CourierNode(nodes.Counter))

    (group,) = groups(program)

    assert group.bundles[0]["accelerator_type:A100"] > 0
    assert group.labels == {"zone": "a"}
