"""GPUs on Ray: who gets which, and what is refused. The GPUs are only said to be there."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Iterator

import pytest

import launchpad as lp
from tests import nodes
from tests.helpers import gpu_nodes
from tests.ray import clusters

pytest.importorskip("ray")

REFUSED_WITHIN_S = 2.0
GROUPS = {"large": 2.0, "one": 1.0, "another": 1.0, "half": 0.5, "other_half": 0.5, "none": 0.0}


@pytest.fixture(scope="module")
def two_nodes() -> Iterator[clusters.Cluster]:
    """Three GPUs on one node, two on the other."""
    with clusters.running({"num_cpus": 4, "num_gpus": 3}, {"num_cpus": 4, "num_gpus": 2}) as both:
        yield both


def program(groups: dict[str, float]) -> lp.Program:
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
def test_gpus_are_assigned_disjointly_and_visible_before_the_first_import(
    two_nodes: clusters.Cluster,
) -> None:
    with lp.launch(program(GROUPS), "test_ray") as running:
        seen = {label: running.client(label).devices() for label in GROUPS}
        node_of = {label: node_id(running, label) for label in GROUPS}

    whole: dict[tuple[str, str], float] = defaultdict(float)
    for label, (visible, gpus) in seen.items():
        assert visible == ",".join(gpus), label
        assert len(set(gpus)) == {2.0: 2, 0.0: 0}.get(GROUPS[label], 1), label
        for gpu in gpus:
            whole[node_of[label], gpu] += min(GROUPS[label], 1.0)
    assert seen["none"][0] == ""
    assert sorted(whole.values()) == [1.0] * 5, whole


def test_a_program_that_can_never_fit_is_refused_at_once_with_the_arithmetic(
    two_nodes: clusters.Cluster,
) -> None:
    too_many = {"learner": 2.0, "actor": 3.0, "extra": 1.0}

    began = time.monotonic()
    with pytest.raises(lp.LaunchError) as refused:
        lp.launch(program(too_many), "test_ray")

    assert time.monotonic() - began < REFUSED_WITHIN_S
    assert "learner 1×2 + actor 1×3 + extra 1×1 = 6 GPU, and the cluster has 5: " in str(
        refused.value
    )


@pytest.mark.parametrize("gpus", [0.0, 1.0])
def test_row_03_a_launch_in_which_no_worker_gets_a_gpu_says_so(
    two_nodes: clusters.Cluster, capsys: pytest.CaptureFixture[str], gpus: float
) -> None:
    only = lp.Program("gpus")
    with only.group("a", resources=lp.Resources(gpus=gpus)):
        only.add_node(lp.PyNode(nodes.print_many, 1))

    lp.launch(only, "ray").wait(60)

    said = "no worker is given a GPU, and the cluster has 5: " in capsys.readouterr().out
    assert said == (gpus == 0)


def test_a_worker_that_is_restarted_keeps_its_gpu(two_nodes: clusters.Cluster) -> None:
    restarting = program({"one": 1.0})
    policy = {"one": lp.RestartPolicy(max_restarts=1)}

    with lp.launch(restarting, "test_ray", restart=policy) as running:
        client = running.client("one")
        before = client.devices()
        with lp.testing.KillWorkers(running, ["one"], at_most=1) as kills:
            while not kills.done:
                time.sleep(0.01)
        after = lp.with_options(client, idempotent=True).devices()

    assert after == before


def test_what_is_not_free_now_is_waited_for_and_then_named(
    two_nodes: clusters.Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    from launchpad.launch.backends.ray import placement_group

    monkeypatch.setattr(placement_group, "PENDING_S", 1.0)
    with lp.launch(program({"first": 2.0, "second": 2.0}), "test_ray") as first:
        first.client("second").devices()

        with pytest.raises(lp.ProgramFailed, match=r"no room .* asks for 2 GPU \(of 5.* 1 is free"):
            lp.launch(program({"late": 2.0}), "test_ray").wait(timeout_s=30.0)


def test_two_programs_share_a_cluster_and_no_gpu(two_nodes: clusters.Cluster) -> None:
    with (
        lp.launch(program({"a": 1.0}), "test_ray") as first,
        lp.launch(program({"b": 1.0}), "test_ray") as second,
    ):
        mine = first.client("a").devices(), node_id(first, "a")
        theirs = second.client("b").devices(), node_id(second, "b")

    assert mine != theirs


def test_labels_choose_the_node(two_nodes: clusters.Cluster) -> None:
    choosy = lp.Program("labels")
    with choosy.group("counter", resources=lp.Resources(cpus=1, labels={"zone": "nowhere"})):
        choosy.add_node(lp.CourierNode(nodes.Counter))

    with pytest.raises(
        lp.LaunchError, match=r"no node has the labels that counter wants, zone=nowhere"
    ):
        lp.launch(choosy, "test_ray")
