from __future__ import annotations

import contextlib
import itertools
import random
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import threadpoolctl

import launchpad as lp
from examples._shared import digits
from examples._shared.data import Data
from examples.systems.determined import claims
from examples.systems.determined.algorithm import Asha, Grid, Pbt, Random
from examples.systems.determined.experiment import Experiment
from examples.systems.determined.log import Allocation, History, Report, TrialRow
from examples.systems.determined.master import Master
from examples.systems.determined.oracle import train_alone
from examples.systems.determined.page import page
from examples.systems.determined.program import Agent, make_program
from examples.systems.determined.scheduler import Job, Plan, schedule
from examples.systems.determined.user import Sight, Submission
from tests.examples.conftest import assert_refused
from tests.helpers import browsers

ASHA = Experiment("asha", "asha", {"trials": 3, "rungs": [1, 3]})
WEIGHTS = np.zeros(2)


@pytest.fixture
def make_master(tmp_path: Path) -> Iterator[Callable[..., Master]]:
    """Makes a master, in a worker: another one is its next attempt."""
    attempts = itertools.count(1)
    with contextlib.ExitStack() as stack:

        def make() -> Master:
            here = lp.testing.worker("master", state=tmp_path, attempt=next(attempts))
            stack.enter_context(here)
            return Master()

        yield make


def test_grid_tries_every_combination_and_random_the_same_points_for_the_same_seed() -> None:
    starts = Grid({"rate": [1, 2], "decay": [0, 3]}, 5).begin()

    assert [tuple(start.hyperparameters.values()) for start in starts] == [
        (1, 0),
        (1, 3),
        (2, 0),
        (2, 3),
    ]
    assert Random(3, 5, seed=1).begin() == Random(3, 5, seed=1).begin() != Random(3, 5).begin()
    assert Random(3, 5).report(0, 5, 0.1) == (0, [])


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(2))
def test_asha_decides_as_optuna_does(seed: int) -> None:
    optuna = pytest.importorskip("optuna")
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    dice, asha, rungs = random.Random(seed), Asha(40, (1, 3, 9, 27)), [1, 3, 9, 27]
    study = optuna.create_study(
        pruner=optuna.pruners.SuccessiveHalvingPruner(min_resource=1, reduction_factor=3)
    )
    trials = {i: study.ask() for i in range(40)}
    targets = dict.fromkeys(trials, 1)

    decided = 0
    while targets:
        i = dice.choice(list(targets))
        epochs, loss = targets[i], dice.random()
        trials[i].report(loss, epochs)
        targets[i] = asha.report(i, epochs, loss)[0]
        if epochs != rungs[-1]:
            assert bool(targets[i]) != trials[i].should_prune()
            decided += 1
        if not targets[i]:
            study.tell(trials[i], state=optuna.trial.TrialState.PRUNED)
            del targets[i]
    assert decided > 40


@pytest.mark.slow
@pytest.mark.endurance
def test_asha_finds_the_best_trial_of_the_example_in_whichever_order_trials_report() -> None:
    training, held_out = digits.load()
    dice, rungs, last = random.Random(0), (1, 3, 9, 27), 27
    with threadpoolctl.threadpool_limits(1):
        curves = [
            [
                loss
                for _, loss, _ in itertools.islice(
                    train_alone(i, start.hyperparameters, (training[slice(256)], held_out)), last
                )
            ]
            for i, start in enumerate(Asha(40, rungs, seed=8).begin())
        ]
    at_the_end = [curve[-1] for curve in curves]

    for _ in range(200):
        asha, epochs, targets = Asha(40, rungs, seed=8), [0] * 40, dict.fromkeys(range(40), 1)
        while targets:
            i = dice.choice(list(targets))
            epochs[i] = targets.pop(i)
            target, _ = asha.report(i, epochs[i], curves[i][epochs[i] - 1])
            if target:
                targets[i] = target

        found = min(loss for loss, n in zip(at_the_end, epochs, strict=True) if n == last)
        assert found == min(at_the_end)
        assert sum(epochs) <= 0.3 * 40 * last


def test_pbt_replaces_the_worse_half_by_changed_copies_of_the_better_in_whichever_order_they_end() -> (
    None
):
    def second_round(order: list[int]) -> list:
        pbt = Pbt(4, 2, 3)
        losses = [0.4, 0.1, 0.3, 0.2]
        return [pbt.report(trial, 3, losses[trial]) for trial in order][-1][1]

    starts, before = second_round([0, 1, 2, 3]), Pbt(4, 2, 3).begin()

    assert starts == second_round([2, 3, 1, 0])
    assert [start.parent for start in starts] == [1, 3, 1, 3]
    assert [start.epochs for start in starts] == [6] * 4
    assert [starts[i].hyperparameters for i in (0, 1)] == [
        before[i].hyperparameters for i in (1, 3)
    ]
    for start in starts[2:]:
        values = start.hyperparameters, before[start.parent].hyperparameters
        ratios = {round(values[0][name] / values[1][name], 9) for name in values[0]}
        assert ratios <= {0.8, 1.25}


@pytest.mark.parametrize(
    ("waiting", "running", "free", "planned"),
    [
        # The most urgent first, then who came first.
        ([Job(9, 1, 1), Job(5, 3, 1), Job(5, 2, 1)], [], "ab", [(2, "a"), (3, "b")]),
        # All slots at once, and no other trial overtakes one that waits for them.
        ([Job(5, 1, 2), Job(5, 2, 1)], [], "a", []),
        ([Job(5, 1, 1), Job(5, 2, 2), Job(5, 3, 1)], [], "ab", [(1, "a")]),
    ],
)
def test_slots_go_to_the_most_urgent_trial_whole(waiting, running, free, planned) -> None:
    plan = schedule(waiting, running, list(free))

    assert [(job.n, "".join(slots)) for job, slots in plan.starts] == planned
    assert plan.preempted == []


def test_the_least_urgent_trials_are_preempted_and_no_more_than_need_be() -> None:
    gang, running = Job(1, 9, 3), [Job(5, 1, 1), Job(6, 2, 1), Job(6, 3, 1), Job(1, 4, 1)]

    assert schedule([gang], running, []) == Plan([], [running[2], running[1], running[0]])
    assert schedule([gang], running, ["a"]) == Plan([], [running[2], running[1]])
    assert schedule([gang], running, ["a"], n_ending=1) == Plan([], [running[2]])
    # In vain: there would not be enough even so.
    assert schedule([gang._replace(slots=4)], running, []) == Plan([], [])


def test_a_master_goes_on_from_its_log_and_counts_a_report_once(make_master) -> None:
    first = make_master()
    first.submit(ASHA)
    first.free("slot", "cpu")
    work = first.work("slot")
    target = first.report(work.allocation, 1, 0.5, WEIGHTS)

    second = make_master()

    assert second.report(work.allocation, 1, 0.5, WEIGHTS) == target == 3
    assert second.report(work.allocation, 3, 0.4, WEIGHTS + 1) == 0
    second.free("slot", "cpu")
    worse = second.work("slot")
    assert second.report(worse.allocation, 1, 0.6, WEIGHTS) == 0  # it knows of the 0.5
    history = second.history()
    assert [report[:3] for report in history.reports] == [(1, 1, 0.5), (1, 3, 0.4), (2, 1, 0.6)]
    assert [each.outcome for each in history.allocations] == ["closed", "closed"]


def test_an_attempt_of_the_master_that_is_over_changes_nothing_any_more(make_master) -> None:
    first = make_master()
    second = make_master()

    with pytest.raises(lp.Stopped, match="attempt 1 of the master is over"):
        first.submit(ASHA)
    assert second.history().trials == []


def test_calls_of_a_master_that_has_ended_are_stopped(tmp_path: Path) -> None:
    with lp.testing.worker("master", state=tmp_path):
        master = Master()

    for call in (master.history, master.end_submissions, lambda: master.goes_on(1)):
        with pytest.raises(lp.Stopped, match="attempt 1 of the master is over"):
            call()


def test_a_slot_that_says_twice_that_it_is_free_has_lost_nothing(make_master) -> None:
    first = make_master()
    first.submit(ASHA)
    first.free("slot", "cpu")  # the master is killed, and the slot has no answer

    second = make_master()
    second.free("slot", "cpu")

    assert second.work("slot").allocation == 1


def test_a_slot_that_is_about_to_ask_spares_another_trial(make_master) -> None:
    master = make_master()
    master.submit(Experiment("long", "random", {"trials": 2, "epochs": 9}))
    for slot in ("a", "b"):
        master.free(slot, "cpu")
    working = master.work("a")

    master.submit(Experiment("urgent", "random", {"trials": 1, "epochs": 1}, priority=1))

    assert master.goes_on(working.allocation)
    assert master.work("b").trial == 3


def test_the_page_is_read_only_and_shows_names_as_they_are(make_master) -> None:
    master = make_master()
    master.submit(Experiment("<b>&", "random", {"trials": 1, "epochs": 1}))
    url = f"http://127.0.0.1:{master._pages.server_port}/"

    with urllib.request.urlopen(url) as answer:
        shown = answer.read().decode()
    with pytest.raises(urllib.error.HTTPError, match="501") as refused:
        urllib.request.urlopen(url, data=b"x")
    refused.value.close()

    assert "<td>&lt;b&gt;&amp;/0</td><td>waiting</td>" in shown
    assert "<b>" not in shown


@pytest.mark.slow
@pytest.mark.browser
def test_a_browser_shows_states_and_curves_and_nothing_from_elsewhere(
    make_master, tmp_path
) -> None:
    master = make_master()
    master.submit(ASHA)
    master.free("slot", "cpu")
    work = master.work("slot")
    for epochs, loss in ((1, 2.0), (3, 1.0)):
        master.report(work.allocation, epochs, loss, WEIGHTS)

    with browsers.chromium(tmp_path / "profile") as browser:
        browser.get(f"http://127.0.0.1:{master._pages.server_port}/")

        assert browser.title == "1 of 3 trials are closed"
        rows = browser.find_elements("css selector", "tbody tr[class]")
        assert [row.text.split()[:2] for row in rows] == [
            ["asha/0", "closed"],
            ["asha/1", "waiting"],
            ["asha/2", "waiting"],
        ]
        assert rows[0].text.endswith("1 3 1.0 closed")
        curve = browser.find_element("id", "asha/0")
        assert curve.get_attribute("points") == "216.7,10.0 630.0,190.0"
        assert curve.rect["width"] > 400
        assert curve.rect["height"] > 170
        loaded = browser.execute_script("return performance.getEntriesByType('resource').length")
        assert loaded == 0
        assert browser.get_log("browser") == []


def test_a_trial_that_needs_more_slots_than_there_are_is_refused_before_anything_starts() -> None:
    data = Data(np.zeros((1, 64)), np.zeros(1, np.int64))
    wide = Experiment("wide", "asha", {}, slots=3)

    with pytest.raises(ValueError, match="needs 3 slots at once, and pool 'cpu' has 2"):
        make_program((data, data), [Submission(wide)], [Agent(slots=2), Agent(slots=4, pool="gpu")])


def test_checks_refuse_what_is_nearly_right() -> None:
    values = {"rate": 1.0}
    trials = [TrialRow(n, "asha", n - 1, values, None, 1, 3, True) for n in (1, 2)]
    reports = [Report(1, 1, 0.5, 3), Report(2, 1, 0.6, 0), Report(1, 3, 0.4, 0)]
    allocations = [
        Allocation(1, 1, ["agent-0.0"], "preempted"),
        Allocation(2, 2, ["agent-1.0"], "lost"),
        Allocation(3, 1, ["agent-0.0"], "closed"),
    ]
    right = History(trials, reports, allocations, 2)
    asha = Experiment("asha", "asha", {"trials": 2, "rungs": (1, 3)})
    curves = {1: [0.5, 0.45, 0.4], 2: [0.6, 0.6, 0.6]}
    seen = [
        Sight("agent-0.0", 1, 1, 1),
        Sight("agent-1.0", 1, 2, 2),
        Sight("agent-0.0", 1, 0, 0),
        Sight("agent-0.0", 1, 3, 1, epochs=1),
    ]
    pools = {f"agent-{i}.{k}": "cpu" for i in range(2) for k in range(2)}
    gang, both = replace(asha, slots=2), ["agent-0.0", "agent-1.0"]

    def on(slots: list[str], outcome: str = "lost") -> History:
        return right._replace(allocations=[Allocation(1, 1, slots, outcome)])

    whole = on(both)
    claims.check_asha(right, asha)
    claims.check_bits(right, curves, [2], [2])
    claims.check_restarts(right, 1)
    claims.check_budget(right, asha, curves, 1)
    claims.check_preempted(right, curves, seen)
    claims.check_slots(seen, right, 1)
    claims.check_allocations(whole, [gang], pools)
    claims.check_page(page(right), right)

    def with_reports(*changed: Report) -> History:
        return right._replace(reports=list(changed))

    other = right._replace(trials=[trials[0], trials[1]._replace(epochs=2)])
    assert_refused(
        lambda: claims.check_asha(with_reports(*reports[:1], Report(2, 1, 0.6, 3)), asha),
        lambda: claims.check_asha(with_reports(reports[1]._replace(target=0)), asha),
        lambda: claims.check_bits(right, curves, [1], [2]),
        lambda: claims.check_bits(
            with_reports(Report(1, 1, np.nextafter(0.5, 1), 3)), curves, [2], [2]
        ),
        lambda: claims.check_bits(
            right._replace(trials=[trials[0]._replace(is_closed=False)]), curves, [2], [2]
        ),
        lambda: claims.check_restarts(right, 2),
        lambda: claims.check_budget(right, asha, curves, 0.9),
        lambda: claims.check_budget(
            right._replace(trials=[trials[0]._replace(epochs=1), trials[1]]), asha, curves, 1
        ),
        lambda: claims.check_preempted(right._replace(allocations=allocations[1:]), curves, seen),
        lambda: claims.check_preempted(right, {**curves, 1: [0.5, 0.5, 0.5]}, seen),
        lambda: claims.check_preempted(right, curves, [*seen[:3], seen[3]._replace(epochs=0)]),
        lambda: claims.check_allocations(right, [asha], pools),
        lambda: claims.check_allocations(whole, [gang], {**pools, "agent-1.0": "gpu"}),
        lambda: claims.check_allocations(on(["agent-0.0"]), [gang], pools),
        lambda: claims.check_allocations(on(["agent-0.0", "agent-0.1"]), [gang], pools),
        lambda: claims.check_allocations(on(both, "closed"), [gang], pools),
        lambda: claims.check_slots([seen[0], seen[1], seen[3]], right, 1),
        lambda: claims.check_slots([*seen, Sight("agent-1.0", 0, 0, 0)], right, 1),
        lambda: claims.check_slots([*seen, Sight("agent-2.0", 1, 4, 1)], right, 1),
        lambda: claims.check_slots([*seen, Sight("agent-2.0", 1, 2, 2)], right, 1),
        lambda: claims.check_slots(seen[:3], right, 1),
        lambda: claims.check_slots(seen, right, 0),
        lambda: claims.check_page(page(other), right),
        lambda: claims.check_page(page(with_reports(*reports[1:])), right),
    )
