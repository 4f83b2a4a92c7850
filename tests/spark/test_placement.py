"""Which task is the host of which worker, what it gives to them, and what is refused."""

from __future__ import annotations

import asyncio
import re
from typing import Any

import pytest

import launchpad as lp
from launchpad.errors import LaunchError
from launchpad.launch.backends.launcher_info import versions
from launchpad.launch.backends.remote.node_host import NodeHost
from launchpad.launch.backends.remote.worker_host import HostReady, HostSpec, WorkerHost
from launchpad.launch.backends.spark import placement
from launchpad.launch.backends.spark.backend import Spark
from launchpad.launch.plan import WorkerPlan
from launchpad.launch.worker.spec import WorkerSpec
from tests import nodes


def workers(*groups: tuple[str, int, dict[str, Any]]) -> tuple[WorkerPlan, ...]:
    """Of a program with these groups: label, replicas, resources."""
    program = lp.Program("placed")
    for label, count, resources in groups:
        with program.group(label, resources=lp.Resources(**resources)):
            for _ in range(count):
                program.add_node(lp.CourierNode(nodes.Counter))
    return lp.plan(program, "spark").workers


def test_workers_take_turns_on_the_tasks_there_are() -> None:
    placed = placement.place(workers(("a", 3, {}), ("b", 2, {})), n_tasks=2)

    assert placed == {"a-0": 0, "a-1": 1, "a-2": 0, "b-0": 1, "b-1": 0}


def test_a_worker_that_asks_for_gpus_has_a_task_to_itself_while_others_have_some_too() -> None:
    asking = workers(("actor", 2, {}), ("learner", 1, {"gpus": 1}))

    assert placement.place(asking, n_tasks=2) == {"actor-0": 1, "actor-1": 1, "learner-0": 0}
    assert set(placement.place(asking, n_tasks=1).values()) == {0}


def test_too_few_slots_for_those_that_want_one_each_are_counted() -> None:
    asking = workers(("learner", 2, {"gpus": 1}), ("sim", 1, {"cpus": 1}), ("actor", 5, {}))

    with pytest.raises(ValueError, match=r"3 workers .* \(learner, sim\).* has 2 slots"):
        placement.place(asking, n_tasks=2)


def test_the_processes_of_a_colocation_have_one_host() -> None:
    program = lp.Program("together")
    parts = [lp.PyNode(print), lp.PyNode(print)]
    program.add_node(lp.PyNode(print), label="before")
    program.add_node(lp.MultiProcessingColocation(parts), label="pair")

    placed = placement.place(lp.plan(program, "spark").workers, n_tasks=3)

    assert placed == {"before-0": 0, "pair-0.0": 1, "pair-0.1": 1}


def test_processes_that_share_a_host_do_not_share_devices() -> None:
    program = lp.Program("together")
    with program.group("pair", resources=lp.Resources(gpus=0.5)):
        program.add_node(lp.MultiProcessingColocation([lp.PyNode(print), lp.PyNode(print)]))
    asking = lp.plan(program, "spark").workers

    assert "pair asks for 2 GPUs on one host" in placement.refusal(asking, cpus=1, gpus=1)


@pytest.mark.parametrize(
    ("resources", "why"),
    [
        ({"cpus": 3}, r"learner asks for 3 CPUs .* spark\.task\.cpus=3"),
        ({"gpus": 2}, r"learner asks for 2 GPUs .* spark\.task\.resource\.gpu\.amount=2"),
        ({"placement": "strict_spread"}, "learner wants placement='strict_spread'.*take 'spread'"),
        ({"labels": {"zone": "a"}}, "learner wants labels="),
        ({"gpus": 1, "accelerator": "A100"}, "learner wants accelerator='A100'"),
        ({"cpus": 2, "gpus": 0.5, "memory": "1GiB", "placement": "pack"}, "^$"),
    ],
)
def test_what_no_task_can_give_is_refused_with_what_to_do(
    resources: dict[str, Any], why: str
) -> None:
    asking = workers(("actor", 1, {}), ("learner", 1, resources))

    assert re.search(why, placement.refusal(asking, cpus=2, gpus=1))


async def open_at(
    self: WorkerHost, where: HostReady, gpus: tuple[str, ...], *_: object
) -> tuple[str, ...]:
    """In place of that of `WorkerHost`."""
    return gpus


def test_workers_of_one_task_have_devices_of_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    program = lp.Program("gpus")
    parts = [lp.PyNode(print) for _ in range(3)]
    with program.group("pair", resources=lp.Resources(gpus=0.5)):
        program.add_node(lp.MultiProcessingColocation(parts))
    plan = lp.plan(program, "spark")
    monkeypatch.setattr(WorkerHost, "open_at", open_at)
    nothing: Any = None
    where = HostReady("here", "127.0.0.1")
    host = NodeHost(
        where, versions(), "", gpus=("4", "5"), gpus_from="spark.task.resource.gpu.amount"
    )

    async def give() -> list[object]:
        def call(worker: str, method: str, *more: object) -> Any:
            return host._call(worker, method, *more)

        def spec(worker: str) -> HostSpec:
            of_worker = WorkerSpec(plan.worker(worker), "gpus", "spark", {}, nothing)
            return HostSpec(of_worker, nothing, "run")

        names = [f"pair-0.{i}" for i in range(2)]
        given = [await call(name, "open", spec(name), nothing) for name in names]
        with pytest.raises(
            LaunchError, match=r"pair-0\.2 asks for 1 GPU.*\['4', '5'\], \[\] are free"
        ):
            await call("pair-0.2", "open", spec("pair-0.2"), nothing)
        await call("pair-0.0", "end")
        return [*given, await call("pair-0.2", "open", spec("pair-0.2"), nothing)]

    assert asyncio.run(give()) == [("4",), ("5",), ("4",)]


@pytest.mark.parametrize("hosts", [0, True, 2.5], ids=repr)
def test_a_number_of_hosts_that_counts_none_is_refused(hosts: Any) -> None:
    with pytest.raises(lp.DefinitionError, match=re.escape(f"hosts={hosts!r}")):
        Spark(hosts=hosts)
