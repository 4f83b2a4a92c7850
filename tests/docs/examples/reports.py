"""Examples of what programs report: errors, recorded orders; and of tests of programs."""

from __future__ import annotations

import contextlib
import threading
from typing import Any

import pytest

import launchpad as lp
from tests.docs.examples import programs
from tests.docs.examples.runner import DEADLINE_S, Example, example_of, run
from tests.waiting import until


@example_of("LaunchpadError", "ProgramFailed", "Outcome")
def program_fails(example: Example) -> None:
    example.run(program=programs.failing())


@example_of("LaunchError")
def another_program_saves_there(example: Example) -> None:
    example.launch(programs.training()["program"], state="runs/a")

    example.run(program=programs.hello())


@example_of("PayloadError")
def lock_cannot_be_sent(example: Example) -> None:
    example.run(threading=threading)


@example_of("ResultError")
def lock_cannot_be_returned(example: Example) -> None:
    program = lp.Program("locks")
    program.add_node(lp.PyNode(threading.Lock), label="main")

    example.run(program=program)


@example_of("DoNotRestart")
def worker_gives_up(example: Example) -> None:
    with pytest.raises(lp.DoNotRestart, match="no dataset at data"):
        example.run(path="data", error=FileNotFoundError())


@example_of("StaleError")
def answer_is_old(example: Example) -> None:
    class Cached:
        def get_variables(self) -> None:
            raise lp.StaleError("the answer is 2 s old")

    assert example.run(cached=Cached(), learner=programs.Learner())["weights"] == [1.0]


# --- recorded orders of calls --------------------------------------------------------------------


class Parameters:
    def pull(self) -> list[float]:
        return [0.0]

    def push(self, gradient: list[float]) -> None:
        return None


def pull(parameters: Any) -> None:
    parameters.pull()


def run_code(code: str, parameters: Any) -> None:
    run(code, {"parameters": parameters})


def calls_of(example: Example, order: Any, *calls: Any) -> lp.Running:
    """A worker that does this with parameters whose calls are ordered."""
    program = lp.Program("training")
    parameters = program.add_node(lp.CourierNode(Parameters), label="parameters")
    function, *args = calls
    program.add_node(lp.PyNode(function, *args, parameters.through(order)), label="worker")
    running: lp.Running = example.launch(program)
    running.wait(DEADLINE_S)
    return running


@example_of("edges.Record", "edges.Replay")
def order_is_recorded(example: Example) -> None:
    if "Replay" in example.code:
        calls_of(example, lp.edges.Record("runs/a"), pull)

    names = example.run(program=lp.Program("training"), Parameters=Parameters)

    assert names.get("recorded", names.get("replayed")) is not names["parameters"]


@example_of("ReplayError")
def call_is_another_than_recorded(example: Example) -> None:
    calls_of(example, lp.edges.Record("runs/a"), pull)

    running = calls_of(example, lp.edges.Replay("runs/a"), run_code, example.code)

    assert "pull" in running.logs("worker")


# --- tests of programs ---------------------------------------------------------------------------


def counting() -> lp.Program:
    """A program with mappers that go on when they are killed, and a driver that ends it."""
    program = lp.Program("counting")
    with program.group("mapper", restart=lp.RestartPolicy(max_restarts=1000)):
        program.add_node(lp.CourierNode(programs.Learner))
    program.add_node(lp.PyNode(print, "the counts agree"), label="driver")
    return program


@example_of("testing.run")
def program_is_run_by_a_test(example: Example) -> None:
    example.code = example.code.replace("test_mp", "test_mt")

    example.run(make_program=counting)


@example_of("testing")
def mappers_die_in_a_test(example: Example) -> None:
    example.run(make_program=counting)["test_the_counts_agree_although_mappers_die"]()


@example_of("testing.KillWorkers")
def mappers_may_die(example: Example) -> None:
    example.run(running=example.launch(counting()))


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


@example_of("testing.nothing_left_over")
def nothing_is_left(example: Example) -> None:
    example.run(make_program=programs.hello)


@example_of("testing.crash")
def worker_crashes(example: Example) -> None:
    program = lp.Program("training")
    with program.group("trainer", restart=lp.RestartPolicy()):
        program.add_node(lp.PyNode(crash_at_first, example.code))

    running = example.launch(program)
    running.wait(DEADLINE_S)

    assert running.status()[0].attempt == 2


def crash_at_first(code: str) -> None:
    run(code, {"step": 20})


@example_of("testing.freeze")
def learner_is_frozen(example: Example) -> None:
    running = example.launch_processes(programs.training()["program"])
    client = running.client("learner")
    client.step()
    example.code = example.code.replace("timeout_s=1", "timeout_s=0.1")

    example.run(running=running, client=client, pytest=pytest)


@example_of("testing.throttle")
def worker_is_slow(example: Example) -> None:
    running = example.launch_processes(programs.training()["program"])
    running.client("learner").step()
    example.code = example.code.replace("worker-3", "learner-0")
    stop = threading.Timer(0.3, running.stop)
    stop.start()

    example.run(running=running)

    stop.join()


@example_of("testing.History", "testing.Findings")
def calls_are_recorded(example: Example) -> None:
    history = lp.testing.History(example.folder / "history")

    class Account:
        def deposit(self, number: int, amount: int) -> None:
            history.ran(number)

    example.run(
        history=history, tmp_path=example.folder, contextlib=contextlib, number=1, account=Account()
    )
