"""GPUs as a cluster gives them: by a device plugin, which says of four that they are there."""

from __future__ import annotations

import pytest

import launchpad as lp
from tests.helpers import gpu_nodes
from tests.kubernetes import namespaces
from tests.waiting import until

pytestmark = pytest.mark.slow

DEADLINE_S = 90.0


@pytest.fixture(autouse=True)
def four_gpus(pods_run_this: None) -> None:
    """The cluster has them."""
    if (there := namespaces.number_of_gpus()) != 4:
        pytest.skip(f"needs a cluster with 4 GPUs, and this one has {there}")


def program_of(**gpus: int) -> lp.Program:
    """Groups of one node, with so many GPUs."""
    program = lp.Program("gpus")
    for label, number in gpus.items():
        with program.group(label, resources=lp.Resources(gpus=number)):
            program.add_node(lp.PyNode(gpu_nodes.tells))
    return program


def told(running: lp.Running, label: str) -> list[str]:
    """What a node says: the devices that it was given, what launchpad calls them, what CUDA sees."""
    return until(lambda: running.logs(label)).rstrip("\n").split("|")


def test_gpus_are_given_disjointly_and_who_finds_none_left_is_told_the_arithmetic() -> None:
    running = lp.launch(program_of(two=2, one=1, other=1, nobody=0), "test_kubernetes")
    try:
        labels = ("two", "one", "other", "nobody")
        given, ours, cuda = zip(*(told(running, label) for label in labels), strict=True)

        late = lp.launch(program_of(a=1, b=1), "test_kubernetes", pending_timeout_s=3)
        with pytest.raises(lp.ProgramFailed) as refused, late:
            late.wait(DEADLINE_S)
    finally:
        running.stop()

    devices = [device for each in given[:3] for device in each.split(",")]
    assert sorted(devices) == ["0", "1", "2", "3"]
    assert given[3] == "none"
    assert ours == ("0,1", "0", "0", "")
    assert cuda[3] == ""
    report = str(refused.value)
    assert "pending for 3 s: Unschedulable: 0/1 nodes are available" in report
    assert "1 Insufficient nvidia.com/gpu" in report
    assert "it asks for 1 GPU, and its program for a 1×1 GPU + b 1×1 GPU = 2" in report
