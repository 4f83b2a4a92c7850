"""What a job asks for on each node: enough for the fullest one of nodes that are filled evenly."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

import launchpad as lp
from launchpad.launch.backends.remote.placement import NodeSupply, Room
from launchpad.launch.backends.slurm import share
from launchpad.launch.backends.slurm.share import NodeShare
from launchpad.launch.devices.device import Device
from tests.slurm.programs import plan_of


def test_workers_are_spread_evenly_and_count_one_cpu_without_a_number() -> None:
    plan = plan_of(("a", 5, lp.Resources()), ("b", 2, lp.Resources(cpus=3)))

    assert share.largest(plan.workers, 1) == NodeShare(11)
    assert share.largest(plan.workers, 2) == NodeShare(6)


def test_gpus_and_memory_are_those_of_the_fullest_node() -> None:
    resources = lp.Resources(gpus=1, accelerator="A100", memory="2GiB")
    plan = plan_of(("a", 3, resources), ("b", 4, lp.Resources(gpus=0.5)))

    assert share.largest(plan.workers, 1) == NodeShare(7, 6 << 30, {"": 2, "A100": 3})
    assert share.largest(plan.workers, 2).gpus["A100"] == 2


def test_shares_of_a_gpu_that_do_not_fit_together_need_more_gpus() -> None:
    plan = plan_of(("a", 3, lp.Resources(gpus=0.6)))

    assert share.largest(plan.workers, 1).gpus == {"": 3}


def test_a_group_that_wants_a_node_each_is_refused_on_fewer_nodes() -> None:
    group = ("a", 3, lp.Resources(placement="strict_spread"))

    assert share.largest(plan_of(group, nodes=3).workers, 3) == NodeShare(1)
    with pytest.raises(lp.DefinitionError, match="a wants a node for each of its workers"):
        plan_of(group, nodes=2)


def test_a_script_in_a_job_has_all_nodes_of_the_job(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SLURM_JOB_ID", "17")
    monkeypatch.setenv("SLURM_JOB_NUM_NODES", "3")

    plan = plan_of(("a", 3, lp.Resources(placement="strict_spread")))

    assert "--nodes=3" in plan.shown()


@given(
    st.lists(
        st.tuples(st.integers(1, 4), st.integers(1, 8), st.integers(0, 2)), min_size=1, max_size=4
    )
)
def test_one_node_with_the_whole_share_has_room_for_all(
    groups: list[tuple[int, int, int]],
) -> None:
    plan = plan_of(
        *(
            (f"g{i}", n, lp.Resources(cpus=cpus, gpus=gpus))
            for i, (n, cpus, gpus) in enumerate(groups)
        )
    )
    need = share.largest(plan.workers, 1)
    devices = [Device(i, f"GPU-{i}", "") for i in range(need.gpus.get("", 0))]
    room = Room()
    room.add("h1", NodeSupply(need.cpus, need.memory_bytes, devices))

    room.place_all(plan.workers)

    assert all(room.place_of(worker.name) for worker in plan.workers)
