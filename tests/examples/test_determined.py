from __future__ import annotations

import contextlib
import itertools
import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import threadpoolctl

import launchpad as lp
from examples._shared import digits
from examples.systems.determined import claims
from examples.systems.determined.__main__ import train
from examples.systems.determined.algorithm import Asha, Random, choice, log
from examples.systems.determined.master import Event, Master, Trial
from examples.systems.determined.program import make_program
from tests.examples.conftest import assert_refused

SPACE = {"rate": log(1e-3, 1), "width": choice(8, 16)}
TRIALS: dict[str, Any] = {"train": lambda *_: None, "space": SPACE}
NOTHING = b""


def random_search(name: str, trials: int, steps: int, **options: Any) -> Random:
    return Random(name=name, trials=trials, steps=steps, **TRIALS, **options)


def asha(trials: int, steps: int, **options: Any) -> Asha:
    return Asha(name="asha", trials=trials, steps=steps, **TRIALS, **options)


Attempt = Callable[..., Master]


@pytest.fixture
def attempt(tmp_path: Path) -> Iterator[Attempt]:
    """Makes a master, in a worker: another one is its next attempt."""
    attempts = itertools.count(1)
    with contextlib.ExitStack() as stack:

        def make(*experiments: Random) -> Master:
            here = lp.testing.worker("master", state=tmp_path, attempt=next(attempts))
            stack.enter_context(here)
            return Master(experiments, {})

        yield make


def work(master: Master, slot: str, attempt: int = 1, done: int = 0) -> Trial:
    trial = master.work(slot, attempt, done)
    assert trial is not None
    return trial


# --- experiments ---------------------------------------------------------------------------------


def test_a_seed_draws_the_same_points_of_a_space_again() -> None:
    points = random_search("search", 100, 1, seed=1).points()

    assert points == random_search("search", 100, 1, seed=1).points()
    assert points != random_search("search", 100, 1).points()
    assert all(1e-3 <= point["rate"] <= 1 for point in points)
    assert {point["width"] for point in points} == {8, 16}
    assert 40 < sum(point["rate"] < 1e-3**0.5 for point in points) < 60


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(2))
def test_asha_decides_as_optuna_does(seed: int) -> None:
    optuna = pytest.importorskip("optuna")
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    dice = random.Random(seed)
    search = asha(40, 27, eta=3, max_rungs=4)
    pruner = optuna.pruners.SuccessiveHalvingPruner(min_resource=1, reduction_factor=3)
    study = optuna.create_study(pruner=pruner)
    trials = {i: study.ask() for i in range(40)}
    curves: list[list[float]] = [[] for _ in range(40)]

    open_trials = list(trials)
    while open_trials:
        i = dice.choice(open_trials)
        curves[i].append(dice.random())
        trials[i].report(curves[i][-1], len(curves[i]))
        goes_on = search.goes_on(i, curves)
        if len(curves[i]) < 27:
            assert goes_on != trials[i].should_prune()
        if not goes_on:
            study.tell(trials[i], state=optuna.trial.TrialState.PRUNED)
            open_trials.remove(i)


def test_brackets_of_adaptive_asha_have_as_many_trials_as_those_of_determined() -> None:
    assert asha(100, 64, max_rungs=4, brackets=3).rungs() == [4] * 70 + [2] * 8 + [3] * 22
    assert asha(16, 18, eta=3, max_rungs=3, brackets=2).rungs() == [3] * 11 + [2] * 5
    assert asha(4, 18, eta=3, max_rungs=3, brackets=3).rungs() == [3, 3, 1, 2]
    assert asha(16, 18).rungs() == [5] * 16


def test_brackets_do_not_compete_with_each_other() -> None:
    search = asha(4, 9, eta=3, max_rungs=2, brackets=2)

    assert search.rungs() == [2, 2, 2, 1]
    assert search.goes_on(1, [[0.5, 0.5, 0.5], [0.3, 0.3, 0.3], [], [0.1, 0.1, 0.1]])
    assert not search.goes_on(0, [[0.5, 0.5, 0.5], [0.3, 0.3, 0.3], [], []])


class Alone:
    """The context of a trial that has one rank, and trains up to a step."""

    rank = 0
    size = 1

    def __init__(self, seed: int, steps: int) -> None:
        self.seed = seed
        self.losses: list[float] = []
        self._steps = steps

    def load(self, first: Any) -> Any:
        return first

    def steps(self) -> range:
        return range(1, self._steps + 1)

    def gather(self, value: Any) -> list[Any]:
        return [value]

    def report(self, step: int, loss: float, checkpoint: Any) -> None:
        self.losses.append(loss)


@pytest.mark.slow
@pytest.mark.endurance
def test_the_search_of_the_example_finds_a_good_trial_in_whichever_order_trials_report() -> None:
    space = {"rate": log(1e-3, 3), "width": choice(8, 16, 32)}
    search = Asha(name="asha", train=train, space=space, trials=30, steps=18, eta=3, max_rungs=3)
    full = {}
    with threadpoolctl.threadpool_limits(1), lp.testing.worker("alone"):
        for i, hparams in enumerate(search.points()):
            context: Any = Alone(i, 18)
            train(*digits.load(), context, hparams)
            full[f"asha/{i}"] = context.losses
    dice = random.Random(0)

    for _ in range(200):
        curves: list[list[float]] = [[] for _ in full]
        open_trials = list(range(30))
        while open_trials:
            i = dice.choice(open_trials[:5])  # five slots
            curves[i].append(full[f"asha/{i}"][len(curves[i])])
            if not search.goes_on(i, curves):
                open_trials.remove(i)

        claims.check_curves({f"asha/{i}": curve for i, curve in enumerate(curves)}, full)


# --- the master ----------------------------------------------------------------------------------


def test_a_master_goes_on_from_its_log_and_counts_a_report_once(attempt: Attempt) -> None:
    search = asha(3, 3, eta=3, max_rungs=2)
    first = attempt(search)
    run = work(first, "slot").run
    assert first.report("slot", run, 1, 0.5, NOTHING)

    second = attempt(search)

    assert second.report("slot", run, 1, 0.5, NOTHING)
    assert second.report("slot", run, 2, 0.45, NOTHING)
    assert not second.report("slot", run, 3, 0.4, b"the last")
    worse = work(second, "slot", done=run)
    assert not second.report("slot", worse.run, 1, 0.6, NOTHING)  # it knows of the 0.5
    assert second.events() is None
    worst = work(second, "slot", done=worse.run)
    assert not second.report("slot", worst.run, 1, 0.7, NOTHING)
    events = second.events()
    assert events is not None
    assert [(each.kind, each.trial.number, each.step) for each in events] == [
        ("begins", 0, 0),
        ("goes on", 0, 1),
        ("goes on", 0, 2),
        ("closed", 0, 3),
        ("begins", 1, 0),
        ("closed", 1, 1),
        ("begins", 2, 0),
        ("closed", 2, 1),
    ]
    assert events[0].trial.metrics == [0.5, 0.45, 0.4]
    assert events[0].trial.checkpoint == b"the last"


def test_a_slot_whose_answer_was_lost_gets_the_same_work_again(attempt: Attempt) -> None:
    search = random_search("search", 2, 1)
    run = work(attempt(search), "slot").run

    assert work(attempt(search), "slot").run == run


def test_a_slots_next_attempt_gets_work_and_the_one_before_gets_none(attempt: Attempt) -> None:
    master = attempt(random_search("search", 1, 2))
    first_run = work(master, "slot").run
    master.report("slot", first_run, 1, 0.5, NOTHING)

    again = work(master, "slot", attempt=2)

    assert again.run > first_run
    assert again.metrics == [0.5]
    assert master.work("slot", 1, 0) is None
    assert not master.report("slot", first_run, 2, 0.4, NOTHING)


def test_slots_go_whole_to_the_most_urgent_trial_and_none_overtakes_it(attempt: Attempt) -> None:
    gang = random_search("gang", 1, 1, slots=2, priority=5)
    master = attempt(random_search("late", 9, 1, priority=9), gang)

    assert master.work("a", 1, 0) is None
    assert work(master, "b").name == "gang/0"
    assert list(work(master, "a").slots) == ["a", "b"]
    assert work(master, "c").name == "late/0"


def test_no_more_trials_are_preempted_than_need_be_and_they_go_on_later(attempt: Attempt) -> None:
    gang = random_search("gang", 1, 1, slots=2, priority=5, after=2)
    master = attempt(random_search("search", 3, 9), gang)
    a, b, c = (work(master, slot).run for slot in "abc")
    assert master.report("a", a, 1, 0.5, NOTHING)
    assert master.report("a", a, 2, 0.5, NOTHING)  # now the gang begins

    assert master.report("a", a, 3, 0.5, NOTHING)
    assert not master.report("b", b, 1, 0.5, b"saved")
    assert master.work("b", 1, b) is None
    assert not master.report("c", c, 1, 0.5, NOTHING)
    urgent = work(master, "c", done=c)
    assert (urgent.name, list(urgent.slots)) == ("gang/0", ["b", "c"])
    assert not master.report("b", urgent.run, 1, 0.5, NOTHING)
    again = work(master, "b", done=urgent.run)
    assert (again.name, again.checkpoint) == ("search/1", b"saved")


def test_a_trial_waits_until_all_slots_of_its_last_run_are_free(attempt: Attempt) -> None:
    master = attempt(random_search("gang", 1, 9, slots=2))
    assert master.work("a", 1, 0) is None
    run = work(master, "b").run

    assert master.work("a", 2, 0) is None  # it has died
    assert master.work("c", 1, 0) is None
    assert work(master, "b", done=run).run > run


def test_a_trial_that_needs_more_slots_than_there_are_is_refused_before_anything_starts() -> None:
    with pytest.raises(ValueError, match="needs 3 slots at once, and there are 2"):
        make_program([random_search("wide", 1, 1, slots=3)], agents=[1, 1])


# --- claims --------------------------------------------------------------------------------------


def test_checks_refuse_what_is_nearly_right() -> None:
    search = asha(2, 3, eta=3, max_rungs=2, slots=2)
    good = Trial("asha/0", search, 0, {}, [0.5, 0.45, 0.4])
    bad = Trial("asha/1", search, 1, {}, [0.6])
    both = {"agent-0.0": 1, "agent-1.0": 1}
    happened: list[tuple[str, Trial, int]] = [
        ("begins", good, 0),
        ("goes on", good, 1),
        ("preempted", good, 2),
        ("begins", bad, 0),
        ("lost", bad, 0),
        ("begins", bad, 0),
        ("closed", bad, 1),
        ("begins", good, 2),
        ("closed", good, 3),
    ]
    events = [Event(*each, both) for each in happened]
    full = {"asha/0": [0.5, 0.45, 0.4], "asha/1": [0.6, 0.5, 0.45]}
    full |= {f"asha/{i}": [0.7] * 5 + [0.7 - 0.01 * i] for i in range(2, 9)}
    curves = {name: curve[:1] for name, curve in full.items()} | {"asha/0": [0.5, 0.45]}
    last = {"asha/0": [0.5], "asha/2": [0.7, 0.7]}
    another_bit = {"asha/1": [0.6, 0.5], "asha/8": [np.nextafter(0.7, 1)]}
    rungs = [(1, 3)] * 2

    claims.check_asha("asha", events, rungs)
    claims.check_runs(events)
    claims.check_curves(curves, full)

    going_on = [each._replace(kind=each.kind.replace("closed", "goes on")) for each in events]
    shared = [events[0], events[3], *events[1:3], *events[4:]]
    split = [each._replace(slots={"agent-0.0": 1}) for each in events]
    unhurt = [each for each in events if each.kind != "lost"]
    unmoved = events[:2] + events[3:7] + events[8:]
    assert_refused(
        lambda: claims.check_asha("asha", going_on, rungs),
        lambda: claims.check_asha("asha", events, [(2, 3)] * 2),
        lambda: claims.check_runs(shared),
        lambda: claims.check_runs(split),
        lambda: claims.check_runs(unhurt),
        lambda: claims.check_runs(unmoved),
        lambda: claims.check_runs(events[:-1]),
        lambda: claims.check_curves(full, full),
        lambda: claims.check_curves(curves | another_bit, full),
        lambda: claims.check_curves(curves | last, full),
    )
