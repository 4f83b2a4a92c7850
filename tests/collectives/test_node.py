"""How a CollectiveNode stands in the graph, and what is refused where it is made."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from typing import Any

import pytest

import launchpad as lp
from tests.helpers.collective_nodes import Stage


def train(group: lp.Collective, steps: int = 1) -> int:
    return group.all_reduce(steps)


def test_the_rendezvous_is_a_worker_of_its_own_and_the_ranks_are_edges_of_each_other() -> None:
    program = lp.Program("graph")
    with program.group("trainer"):
        handles = [program.add_node(lp.CollectiveNode(train, 2)) for _ in range(2)]

    plan = lp.plan(program, "test_mt")

    assert [w.name for w in plan.workers] == ["trainer-0", "trainer-1", "trainer.rendezvous-0"]
    assert plan.worker("trainer-0").calls == ("trainer-1", "trainer.rendezvous-0")
    assert plan.worker("trainer.rendezvous-0").policy.stops_last
    assert not handles[0].can_be_dereferenced
    assert lp.run(program, "test_mt", timeout_s=60)["trainer"] == [4, 4]


def test_ranks_may_be_in_colocations_and_several_groups_be_side_by_side() -> None:
    program = lp.Program("colocated")
    for label, n in (("a", 2), ("b", 3)):
        with program.group(label):
            for _ in range(n):
                node = lp.CollectiveNode(train, 1)
                other = lp.PyNode(lp.current)
                program.add_node(lp.MultiThreadingColocation([node, other]) if n == 3 else node)

    running = lp.testing.run(program, 60, "test_mt")

    assert {s.state for s in running.status()} <= {"succeeded", "stopped"}
    assert running.results("a") == [2, 2]


def ask(stages: list[Any]) -> list[tuple[int, int]]:
    return [stage.place() for stage in stages]


def test_a_class_is_served_as_by_a_courier_node() -> None:
    program = lp.Program("stages")
    with program.group("stage", serves_until="program"):
        stages = [program.add_node(lp.CollectiveNode(Stage, 10 * (i + 1))) for i in range(2)]
    program.add_node(lp.PyNode(ask, stages), label="driver")

    results = lp.run(program, "test_mp", timeout_s=60)

    assert results["driver"] == [[(0, 10), (1, 20)]]
    assert results["stage"] == [30, 30]


def test_one_line_makes_a_program_of_ranks_that_restart_together() -> None:
    program = lp.ranks(train, 3, steps=2)

    assert program.name == "train"
    assert program.group_options("rank").restart == lp.RestartPolicy(scope="group")
    assert lp.run(program, "test_mt", timeout_s=60)["rank"] == [6, 6, 6]


def scaled(group: lp.Collective, *, backend: int) -> int:
    return group.all_reduce(backend)


def test_an_argument_that_is_called_like_an_option_of_ranks_goes_in_a_partial() -> None:
    program = lp.ranks(functools.partial(scaled, backend=5), 2, backend="courier")

    assert program.name == "scaled"
    assert lp.run(program, "test_mt", timeout_s=60)["rank"] == [10, 10]


def ten_steps(group: lp.Collective) -> Iterator[int]:
    yield from range(10)


@pytest.mark.parametrize(
    ("mistake", "text"),
    [
        (lambda: lp.CollectiveNode(train, backend="mpi"), "backend='mpi'"),
        (lambda: lp.CollectiveNode(train, timeout_s=0), "timeout_s=0"),
        (lambda: add(lp.CollectiveNode(train, stepz=3)), "cannot be called so"),
        (lambda: add(lp.CollectiveNode(lambda: None)), "cannot be called so"),
        (
            lambda: add(lp.CollectiveNode(train), lp.CollectiveNode(train, backend="gloo")),
            "have one",
        ),
        (lambda: lp.ranks(train, 0), r"lp.ranks\(train, 0\)"),
        (lambda: lp.ranks(train, 2.0), "expected the number of ranks"),  # type: ignore[arg-type]
        (lambda: lp.ranks(train, 2, stepz=3), "cannot be called so"),
        (lambda: lp.ranks(ten_steps, 2), "is a generator"),
        (lambda: lp.RestartPolicy(scope="group", min_replicas=2), "by itself"),
        (lambda: lp.RestartPolicy(min_replicas=0), "min_replicas=0"),
    ],
)
def test_mistakes_are_refused_where_they_are_made(mistake: Any, text: str) -> None:
    with pytest.raises(lp.DefinitionError, match=text):
        mistake()


def test_ranks_without_a_function_are_refused() -> None:
    with pytest.raises(TypeError, match="needs a function or a class first, got 4"):
        lp.ranks(4, train)  # type: ignore[arg-type]


def add(*nodes: lp.CollectiveNode[Any]) -> None:
    program = lp.Program("p")
    for node in nodes:
        program.add_node(node, label="trainer")
