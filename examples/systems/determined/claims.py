"""Checks of Determined's promises, on the log, on what the user saw, and by training every trial alone."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from html import unescape
from itertools import islice

from threadpoolctl import threadpool_limits

from examples._shared.checks import check
from examples._shared.data import Array, Data
from examples.systems.determined.experiment import Experiment
from examples.systems.determined.log import History, Report, TrialRow
from examples.systems.determined.oracle import asha_goes_on, train_alone
from examples.systems.determined.user import Sight

Curve = list[float]
"""The losses of a trial after each of its epochs, from the first."""


def curves_alone(
    history: History, data: tuple[Data, Data], to_the_end: Experiment
) -> dict[int, Curve]:
    """Train each trial alone, as far as the log says that it has come. Train those of ASHA to the end."""
    last = {to_the_end.name: to_the_end.options["rungs"][-1]}
    curves = dict[int, Curve]()
    ends = dict[int, tuple[int, Array]]()
    numbered = {(trial.experiment, trial.number): trial.n for trial in history.trials}
    threadpool_limits(1)  # matrices are small: with more threads they take longer
    for trial in history.trials:
        parent = None if trial.parent is None else numbered[trial.experiment, trial.parent]
        curve: Curve = []
        begin = None
        if parent is not None:
            curve = curves[parent].copy()
            begin = ends[parent]
        alone = train_alone(trial.number, trial.hyperparameters, data, trial.slots, begin)
        for epochs, loss, parameters in islice(
            alone, last.get(trial.experiment, trial.epochs) - len(curve)
        ):
            curve.append(loss)
            ends[trial.n] = epochs, parameters
        curves[trial.n] = curve
    return curves


def check_asha(history: History, experiment: Experiment) -> None:
    """Check ASHA's decisions against its rule, though the searcher was killed with its master."""
    own = {trial.n for trial in history.trials if trial.experiment == experiment.name}
    reports = [report for report in history.reports if report.trial in own]
    last = experiment.options["rungs"][-1]
    eta = experiment.options.get("eta", 3)
    wrong = [
        report
        for i, report in enumerate(reports)
        if bool(report.target)
        != (
            report.epochs < last
            and asha_goes_on([(each.epochs, each.loss) for each in reports[: i + 1]], eta)
        )
    ]
    check(
        not wrong and len(own) == experiment.options["trials"],
        "ASHA decides as one process does that applies its rule to the reports in the recorded order",
        f"{len(reports) - len(wrong)} of {len(reports)} decisions, on {len(own)} trials",
    )


def check_bits(
    history: History,
    curves: Mapping[int, Curve],
    attempts: Sequence[int],
    expected: Sequence[int],
) -> None:
    """Check that kills have changed and lost no trial, and that just the planned kills have happened."""
    equal = sum(
        report.loss == curves[report.trial][report.epochs - 1] for report in history.reports
    )
    closed = sum(trial.is_closed for trial in history.trials)
    n = len(history.reports)
    n_trials = len(history.trials)
    check(
        equal == n and closed == n_trials and list(attempts) == list(expected),
        "trials have the losses of undisturbed ones, bit for bit, although agents and the master die",
        f"{equal} of {n} losses are equal, {closed} of {n_trials} trials are closed; slots ended in attempts"
        f" {list(attempts)}",
    )


def check_restarts(history: History, killed: int) -> None:
    """Check that the master went on from its log after each kill."""
    outcomes = Counter(each.outcome for each in history.allocations)
    check(
        history.attempt == killed + 1 and None not in outcomes,
        "a master that is killed goes on from its log",
        f"it ended in attempt {history.attempt}; allocations: "
        + ", ".join(f"{n} {outcome}" for outcome, n in outcomes.items()),
    )


def check_budget(
    history: History, experiment: Experiment, curves: Mapping[int, Curve], share: float
) -> None:
    """Check that ASHA finds the best trial with few epochs. Epochs trained again after kills don't count."""
    own = [trial for trial in history.trials if trial.experiment == experiment.name]
    last = experiment.options["rungs"][-1]
    used = sum(trial.epochs for trial in own)
    full = last * len(own)
    finished = [trial for trial in own if trial.epochs == last]
    best, of_all = (
        min(trials, key=lambda trial: curves[trial.n][last - 1]) for trials in (finished, own)
    )
    check(
        best == of_all and used <= share * full,
        f"ASHA finds the best of all trials with at most {share:.0%} of their epochs",
        f"trial {best.number}, loss {curves[best.n][last - 1]:.4f}, with {used} of {full} epochs"
        f" ({used / full:.0%})",
    )


def check_slots(sights: Sequence[Sight], history: History, deaths: int) -> None:
    """Check what the user has seen: a slot leaves a trial before it begins another, and trials don't split.

    A slot does one thing at a time. If the master gave it another trial in the meantime, the slot would never
    begin that trial, and its allocation would be lost. So at most as many may be lost as slots have died.
    """
    holds: dict[str, Sight] = {}
    shared = 0
    late = 0
    split = 0
    of_allocation: dict[int, set[str]] = defaultdict(set)
    for sight in sights:
        before = holds.get(sight.slot)
        if before is not None:
            late += sight.attempt < before.attempt
            shared += bool(before.allocation and sight.allocation)
        holds[sight.slot] = sight
        if sight.allocation:
            of_allocation[sight.allocation].add(sight.slot)
            allocations = {held.allocation for held in holds.values() if held.trial == sight.trial}
            split += len(allocations) > 1
    strangers = sum(
        not of_allocation[each.n] <= set(each.slots)
        or (each.outcome != "lost" and of_allocation[each.n] != set(each.slots))
        for each in history.allocations
    )
    lost = sum(each.outcome == "lost" for each in history.allocations)
    check(
        bool(sights) and not (shared or late or split or strangers) and lost <= deaths,
        "no slot has two trials at once, and no trial runs twice at once, as seen from outside",
        f"of {len(of_allocation)} allocations on {len(holds)} slots, {shared} shared a slot, {split} shared a"
        f" trial, {late} belonged to an attempt that was over, and {strangers} were on slots other than those"
        f" in the log; {lost} were lost when {deaths} slots died",
    )


def check_allocations(
    history: History, experiments: Sequence[Experiment], pools: Mapping[str, str]
) -> None:
    """Check that a trial has the slots that its experiment asks for, and that some had them again."""
    requests = {experiment.name: (experiment.pool, experiment.slots) for experiment in experiments}
    names = {trial.n: trial.experiment for trial in history.trials}
    right = 0
    agents = 0
    lost = 0
    for each in history.allocations:
        pool, n_slots = requests[names[each.trial]]
        right += len(set(each.slots)) == n_slots and {pools[slot] for slot in each.slots} == {pool}
        agents = max(agents, len({slot.partition(".")[0] for slot in each.slots}))
        lost += n_slots > 1 and each.outcome == "lost"
    check(
        right == len(history.allocations) and agents > 1 and lost > 0,
        "a trial gets all the slots that it asks for at once, from its pool, even on several agents, and"
        " again after a kill",
        f"{right} of {len(history.allocations)} allocations, on at most {agents} agents; {lost} allocations"
        " of several slots lost a slot",
    )


def check_preempted(history: History, curves: Mapping[int, Curve], sights: Sequence[Sight]) -> None:
    """Check that preempted trials went on after what they had trained, and learned the same bits."""
    trials = {trial.n: trial for trial in history.trials}
    preempted = [each for each in history.allocations if each.outcome == "preempted"]
    numbers = {each.trial for each in preempted}
    first_epochs = {sight.allocation: sight.epochs for sight in sights}
    onward = 0
    for each in preempted:
        numbers_of_trial = (row.n for row in history.allocations if row.trial == each.trial)
        after = next((n for n in numbers_of_trial if n > each.n and n in first_epochs), None)
        onward += after is not None and first_epochs[after] > first_epochs[each.n]
    reports = [report for report in history.reports if report.trial in numbers]
    equal = sum(report.loss == curves[report.trial][report.epochs - 1] for report in reports)
    check(
        bool(preempted)
        and onward == len(preempted)
        and all(trials[n].is_closed for n in numbers)
        and equal == len(reports)
        and numbers <= {report.trial for report in reports},
        "trials that are preempted save and go on, and learn the same bits",
        f"{onward} of {len(preempted)} preemptions, of {len(numbers)} trials; {equal} of {len(reports)}"
        " losses are equal",
    )


def check_page(page: str, history: History) -> None:
    """Check that the page shows each trial's state, epochs, last loss, and a point for each report."""
    last: dict[int, Report] = {report.trial: report for report in history.reports}
    n_reports = Counter(report.trial for report in history.reports)
    rows = {tuple(cells) for cells in shown_rows(page)}
    curves = dict(re.findall(r'<polyline id="([^"]*)" points="([^"]*)"', page))

    def is_shown(trial: TrialRow) -> bool:
        name = f"{trial.experiment}/{trial.number}"
        state = "closed" if trial.is_closed else ""
        row = (name, state, str(trial.epochs), repr(last[trial.n].loss))
        return row in rows and len(curves[name].split()) == n_reports[trial.n]

    n_shown = sum(is_shown(trial) for trial in history.trials)
    check(
        n_shown == len(history.trials) == len(rows),
        "the page of trials shows what the log has",
        f"{n_shown} of {len(history.trials)} trials, with {len(history.reports)} points of their curves",
    )


def shown_rows(page: str) -> list[list[str]]:
    """Return the name, state, epochs and loss of each row of the page's tables."""
    rows = [re.findall(r"<td>([^<]*)</td>", row) for row in re.findall(r"<tr class=.*</tr>", page)]
    return [[unescape(row[i]) for i in (0, 1, 4, 5)] for row in rows]
