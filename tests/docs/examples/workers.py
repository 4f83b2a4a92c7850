"""Examples of what a worker does: where it is, whom it waits for, when it stops; and of collectives."""

from __future__ import annotations

import sqlite3
import threading
import types
from collections.abc import Iterator
from typing import Any

import pytest

import launchpad as lp
from tests.docs.examples.runner import DEADLINE_S, Example, example_of, examples, run, run_code


def in_worker(example: Example) -> dict[str, Any]:
    """Runs it in a worker that is alone."""
    with lp.testing.worker("actor", state=example.folder / "state"):
        return example.run(train=lambda epoch: None)


examples(
    {
        "current make_program_stopper barrier": in_worker,
        "stop_event": lambda example: example.run_in_worker(step=lp.stop),
        "wait_for_stop": lambda example: example.changed("60.0", "0.01").run_in_worker(
            write_report=lp.stop
        ),
        "register_stop_handler unregister_stop_handler": lambda example: example.run_in_worker(
            server=lp.Deferred(Waiter), download=lp.Deferred(Waiter)
        ),
    }
)


@example_of("RunContext")
def worker_knows_itself(example: Example) -> None:
    with lp.testing.worker("actor"):
        example.run()["run"](None)


@example_of("on_exit")
def table_lets_go_of_its_database(example: Example) -> None:
    with lp.testing.worker("actor"):
        table = example.run(sqlite3=sqlite3)["Table"](":memory:")
        table.db.execute("select 1")

    with pytest.raises(sqlite3.ProgrammingError, match="closed"):
        table.db.execute("select 1")


@example_of("StateError")
def state_has_no_folder(example: Example) -> None:
    (example.folder / "state").write_text("not a folder")

    in_worker(example)


@example_of("caller Caller")
def server_knows_the_caller(example: Example) -> None:
    class Votes:
        def __init__(self) -> None:
            names = run(example.code, {})
            self.votes = (names.get("Votes") or names["Barrier"])()
            self.votes.of, self.votes.arrived = {}, set()

        def call(self, method: str, *args: str) -> str:
            getattr(self.votes, method)(*args)
            return str(self.votes.of or self.votes.arrived)

    method = ["vote", "yes"] if "Votes" in example.code else ["arrive"]
    assert "pid " in example.client(Votes).call(*method)


@example_of("BarrierBroken")
def one_of_the_group_has_left(example: Example) -> None:
    program = lp.Program("loading")
    with program.group("loader"):
        program.add_node(lp.PyNode(run_code, example.code))
        program.add_node(lp.PyNode(run_code, ""))
    running = example.launch(program)
    running.wait(DEADLINE_S)

    assert "loader-1" in running.logs("loader-0")


@example_of("Inbox")
def stage_takes_what_arrives(example: Example) -> None:
    program = lp.Program("pipeline")
    served = run(example.changed("1000", "2").code, {})["Stage"]
    stage = program.add_node(lp.CourierNode(served), label="stage")
    program.add_node(lp.PyNode(send_two, stage), label="before")

    example.launch(program).wait(DEADLINE_S)


def send_two(stage: Any) -> None:
    for step in range(2):
        stage.forward(step, [0.5])


# --- stopping ------------------------------------------------------------------------------------


@example_of("stop")
def program_is_stopped_by_a_worker(example: Example) -> None:
    example.logs_of(lp.PyNode(run(example.code, {})["run"], None))


class Waiter:
    """Stands for what is ended by a stop handler."""

    def __init__(self) -> None:
        self.is_done = threading.Event()
        self.shutdown = self.cancel = self.is_done.set

    def serve_forever(self) -> None:
        lp.stop()
        assert self.is_done.wait(DEADLINE_S)

    wait = serve_forever


@example_of("Stopped")
def environment_is_closed(example: Example) -> None:
    environment = types.SimpleNamespace(step=stop_at_once, close=lambda: print("closed"))

    class Actor(run(example.code, {})["Actor"]):  # type: ignore[misc]
        def __init__(self) -> None:
            self.environment = environment

    assert "closed" in example.logs_of(lp.PyClassNode(Actor))


def stop_at_once() -> None:
    lp.stop()
    threading.Event().wait(0.01)


# --- collectives ---------------------------------------------------------------------------------


def ranks(
    example: Example,
    *arguments: tuple[Any, ...],
    restart: lp.RestartPolicy | None = None,
    **given: Any,
) -> lp.Running:
    """A rank for each of these arguments, which runs the `train` of the example."""
    names = run(example.code, given)
    program = lp.Program("ranks")
    with program.group("trainer", restart=restart):
        for each in arguments:
            program.add_node(lp.CollectiveNode(names["train"], *each))
    running: lp.Running = example.launch(program)
    return running


@example_of("Collective")
def ranks_train(example: Example) -> None:
    given = {
        "initial_weights": lambda: 1.0,
        "gradients_of": lambda weights, batch: weights * batch,
        "update": lambda weights, gradients: weights - gradients,
    }

    ranks(example, ([0.5, 0.5],), ([0.5, 0.5],), **given).wait(DEADLINE_S)


@example_of("CollectiveNode")
def node_is_one_of_four(example: Example) -> None:
    example.changed("1000", "2").run_to_end(
        gradient_of=lambda batch: batch, batch=lambda step, rank: float(rank)
    )


@example_of("ranks")
def four_ranks_train(example: Example) -> None:
    example.changed("steps=1000", "steps=2").finds(
        {"gradient_of": lambda batch: batch, "batch": lambda step, rank: float(rank)},
        results=[None] * 4,
    )


@example_of("CollectiveMismatch")
def ranks_differ(example: Example) -> None:
    running = ranks(example, (), ())
    running.wait(DEADLINE_S)

    assert "trainer-1" in running.logs("trainer-0")


class FailsAtFirst:
    """Numbers that the first attempt cannot add up."""

    def __iter__(self) -> Iterator[float]:
        if lp.current().attempt == 1:
            raise ValueError("the first attempt")
        return iter([1.0])


@example_of("PeerFailed")
def rank_fails(example: Example) -> None:
    # It comes again: if the program ended with it, the other might be stopped before it hears of it.
    running = ranks(example, ([1.0],), (FailsAtFirst(),), restart=lp.RestartPolicy())
    running.wait(DEADLINE_S)

    assert "trainer-1 is lost, rank 1" in running.logs("trainer-0")


@example_of("MembersChanged")
def another_rank_comes(example: Example) -> None:
    def train_together(group: object) -> None:
        raise lp.MembersChanged("worker 3 has come", "trainer-3", 3, 1)

    with pytest.raises(lp.MembersChanged):
        example.run(train_together=train_together)["train"](None)
