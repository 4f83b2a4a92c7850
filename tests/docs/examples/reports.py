"""Examples of what programs report: errors, recorded orders; and of tests of programs."""

from __future__ import annotations

import threading
import types
from typing import Any

import pytest

import launchpad as lp
from tests.docs.examples.runner import DEADLINE_S, Example, example_of, examples, run_code
from tests.docs.examples.stand_ins import (
    Learner,
    Parameters,
    fail,
    hello,
    program_of,
    training,
)
from tests.waiting import until


def counting() -> lp.Program:
    """A program with mappers that go on when they are killed, and a driver that ends it."""
    program = lp.Program("counting")
    with program.group("mapper", restart=lp.RestartPolicy(max_restarts=1000)):
        program.add_node(lp.CourierNode(Learner))
    program.add_node(lp.PyNode(print, "the counts agree"), label="driver")
    return program


examples(
    {
        "LaunchpadError ProgramFailed Outcome": lambda example: example.run(
            program=program_of(lp.PyNode(fail), label="trainer")
        ),
        "ResultError": lambda example: example.run(program=program_of(lp.PyNode(threading.Lock))),
        "testing.run": lambda example: example.changed("test_mp", "test_mt").run(
            make_program=counting
        ),
        "testing.KillWorkers": lambda example: example.run(running=example.launch(counting())),
        "testing.nothing_left_over": lambda example: example.run(make_program=hello),
        "testing.freeze": lambda example: example.changed("timeout_s=1", "timeout_s=0.1").run(
            **example.learner_process()
        ),
    }
)


@example_of("LaunchError")
def another_program_saves_there(example: Example) -> None:
    example.launch(training()["program"], state="runs/a")

    example.run(program=hello())


@example_of("DoNotRestart")
def worker_gives_up(example: Example) -> None:
    with pytest.raises(lp.DoNotRestart, match="no dataset at data"):
        example.run(path="data", error=FileNotFoundError())


@example_of("StaleError")
def answer_is_old(example: Example) -> None:
    def get_variables() -> None:
        raise lp.StaleError("the answer is 2 s old")

    cached = types.SimpleNamespace(get_variables=get_variables)

    assert example.run(cached=cached, learner=Learner())["weights"] == [1.0]


# --- recorded orders of calls --------------------------------------------------------------------


def pull(parameters: Any) -> None:
    parameters.pull()


def calls_of(example: Example, order: Any, *calls: Any) -> lp.Running:
    """A worker that does this with parameters whose calls are ordered."""
    program = lp.Program("training")
    parameters = program.add_node(lp.CourierNode(Parameters), label="parameters")
    function, *args = calls
    program.add_node(lp.PyNode(function, *args, parameters.through(order)), label="worker")
    running: lp.Running = example.launch(program)
    running.wait(DEADLINE_S)
    return running


@example_of("edges.Record edges.Replay")
def order_is_recorded(example: Example) -> None:
    if "Replay" in example.code:
        calls_of(example, lp.edges.Record("runs/a"), pull)

    names = example.run(program=lp.Program("training"))

    assert names.get("recorded", names.get("replayed")) is not names["parameters"]


@example_of("ReplayError")
def call_is_another_than_recorded(example: Example) -> None:
    calls_of(example, lp.edges.Record("runs/a"), pull)

    running = calls_of(example, lp.edges.Replay("runs/a"), run_code, example.code)

    assert "pull" in running.logs("worker")


# --- tests of programs ---------------------------------------------------------------------------


@example_of("testing")
def mappers_die_in_a_test(example: Example) -> None:
    example.run(make_program=counting)["test_the_counts_agree_although_mappers_die"]()


class Mapper:
    def attempt(self) -> int:
        return lp.current().attempt


def wait_for_another_attempt(mapper: Any) -> None:
    until(lambda: lp.with_options(mapper, idempotent=True).attempt() > 1)


@example_of("testing.Kill")
def mapper_dies(example: Example) -> None:
    program = lp.Program("counting")
    with program.group("mapper", restart=lp.RestartPolicy()):
        mapper = program.add_node(lp.CourierNode(Mapper))
    program.add_node(lp.PyNode(wait_for_another_attempt, mapper), label="driver")

    example.run(running=example.launch(program))


@example_of("testing.Launcher")
def launcher_is_a_fixture(example: Example) -> None:
    def make_program(players: int) -> lp.Program:
        program = lp.Program("playing")
        for _ in range(players):
            program.add_node(lp.PyNode(play), label="player")
        return program

    launcher = lp.testing.Launcher("test_mt")

    example.run(make_program=make_program)["test_every_player_plays"](launcher)

    launcher.close()


def play() -> None:
    me = lp.current()
    print(f"player {me.replica_index + 1} of {me.num_replicas}")


@example_of("testing.worker")
def class_is_tested_alone(example: Example) -> None:
    class Trainer:
        def __init__(self, steps: int) -> None:
            self.steps = steps

        def run(self) -> int:
            lp.current().save(self.steps)
            return int(lp.current().load())

    example.run(Trainer=Trainer)["test_a_trainer_goes_on"](example.folder)


@example_of("testing.crash")
def worker_crashes(example: Example) -> None:
    example.logs_of(lp.PyNode(run_code, example.code, step=20), is_restarted=True)

    assert example.launched[0].status()[0].attempt == 2


@example_of("testing.throttle")
def worker_is_slow(example: Example) -> None:
    running = example.learner_process()["running"]
    stop = threading.Timer(0.3, running.stop)
    stop.start()

    example.changed("worker-3", "learner-0").run(running=running)

    stop.join()


@example_of("testing.History testing.Findings")
def calls_are_recorded(example: Example) -> None:
    history = lp.testing.History(example.folder / "history")
    account = types.SimpleNamespace(deposit=lambda number, amount: history.ran(number))

    example.run(history=history, tmp_path=example.folder, number=1, account=account)
