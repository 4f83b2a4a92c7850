"""Workers on nodes that launchpad fills itself. The nodes only write down what they are asked to do."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import Future
from typing import Any

import pytest

import launchpad as lp
from launchpad import outcome
from launchpad.launch.backends.launcher_info import LauncherInfo
from launchpad.launch.backends.remote.node_connection import NodeGone
from launchpad.launch.backends.remote.node_workers import NodeWorkers
from launchpad.launch.backends.remote.placement import NodeSupply
from launchpad.launch.backends.remote.worker_host import HostReady, HostUpdate
from launchpad.launch.plan import LaunchPlan
from launchpad.launch.rundir.directory import RunDirectory
from launchpad.outcome import Outcome
from launchpad.runtime.commands import AnnounceGone, StartWorker
from launchpad.runtime.events import Ended
from tests.waiting import until

GIB = 1 << 30


class Node:
    """A node. It opens hosts at once, and its workers do nothing until the test says so."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.updates: dict[str, Future[Any]] = {}
        self.ended: list[str] = []

    def call(self, worker: str, method: str, *arguments: Any, **options: Any) -> Future[Any]:
        answer = Future[Any]()
        if method == "open":
            answer.set_result(HostReady(self.name, "127.0.0.1"))
        if method == "next_update":
            self.updates[worker] = answer
        if method == "end":
            self.ended.append(worker)
        if method == "close":
            answer.set_result(None)
        return answer

    def post(self, worker: str, method: str, *arguments: Any, **options: Any) -> None:
        self.call(worker, method, *arguments, **options)

    def end_worker(self, worker: str, kind: str, attempt: int = 1) -> None:
        """Report that an attempt has ended."""
        until(lambda: worker in self.updates)
        end = Ended(Outcome(worker, kind, "run", attempt))
        self.updates[worker].set_result(HostUpdate(attempt, b"", [end]))

    def lose(self) -> None:
        for answer in list(self.updates.values()):
            answer.set_exception(NodeGone("it has no power", is_dead=True))


class Workers(NodeWorkers):
    """Workers on two nodes, each with two CPUs."""

    def __init__(self, plan: LaunchPlan, run: RunDirectory) -> None:
        self.events: list[Any] = []
        super().__init__(plan, run, self.events.append, LauncherInfo.here(), "nodes")
        self._here = HostReady("here", "127.0.0.1")
        self.nodes: dict[str, Any] = {name: Node(name) for name in ("h1", "h2")}
        supply = NodeSupply(2, GIB)
        self._place_all({name: (node, supply) for name, node in self.nodes.items()})
        self._actions.begin()

    def lose(self, name: str) -> None:
        self._do(self._on_node_gone, name, self.nodes[name])
        self.nodes[name].lose()

    def close(self) -> None:
        self._actions.end(self._close_hosts)


@pytest.fixture
def workers() -> Iterator[Workers]:
    """Return two workers, `first` on h1 and `second` on h2, of which each needs a whole node."""
    program = lp.Program("placed")
    for label in ("first", "second"):
        with program.group(label, resources=lp.Resources(cpus=2)):
            program.add_node(lp.PyNode(print))
    plan = lp.plan(program, "ssh", hosts=["h1"])
    run = RunDirectory.create(plan.program, plan.endpoints)
    made = Workers(plan, run)
    for label in ("first", "second"):
        made.execute(StartWorker(f"{label}-0", 1))
    until(lambda: "first-0" in made.nodes["h1"].updates)
    until(lambda: "second-0" in made.nodes["h2"].updates)
    yield made
    made.close()
    run.remove()


def lose_second(workers: Workers) -> None:
    """Lose the node of `second`, and start `second` again, for which there is no room."""
    workers.lose("h2")
    until(lambda: any(isinstance(event, Ended) for event in workers.events))
    workers.execute(StartWorker("second-0", 2))


def test_a_worker_that_waits_gets_the_room_of_one_that_has_succeeded(workers: Workers) -> None:
    lose_second(workers)

    workers.nodes["h1"].end_worker("first-0", outcome.SUCCEEDED)

    until(lambda: "second-0" in workers.nodes["h1"].updates)
    assert workers.nodes["h1"].ended == ["first-0"]


def test_a_worker_that_waits_gets_the_room_of_one_that_is_gone_for_good(workers: Workers) -> None:
    lose_second(workers)

    workers.nodes["h1"].end_worker("first-0", outcome.FAILED)
    workers.execute(AnnounceGone({"first-0": "first-0 has failed, and isn't started again"}))

    until(lambda: "second-0" in workers.nodes["h1"].updates)


def test_a_worker_that_has_failed_keeps_its_room_for_its_next_attempt(workers: Workers) -> None:
    lose_second(workers)

    workers.nodes["h1"].end_worker("first-0", outcome.FAILED)
    until(lambda: sum(isinstance(event, Ended) for event in workers.events) == 2)
    workers.execute(StartWorker("first-0", 2))
    workers.nodes["h1"].end_worker("first-0", outcome.SUCCEEDED, attempt=2)

    until(lambda: "second-0" in workers.nodes["h1"].updates)
    ends = [event.outcome for event in workers.events if isinstance(event, Ended)]
    assert [(end.worker, end.attempt) for end in ends] == [
        ("second-0", 1),
        ("first-0", 1),
        ("first-0", 2),
    ]


def test_a_worker_that_is_started_again_after_its_success_gets_a_place(workers: Workers) -> None:
    node = workers.nodes["h1"]
    node.end_worker("first-0", outcome.SUCCEEDED)
    until(lambda: node.ended)
    node.updates.clear()

    workers.execute(StartWorker("first-0", 2))

    until(lambda: "first-0" in node.updates)
