from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import numpy as np
import pytest

from examples._shared import networks
from examples._shared.problem import Problem
from examples.systems.dist_keras import claims
from examples.systems.dist_keras.algorithm import (
    AdagReplica,
    Centre,
    Commit,
    DynSgdCentre,
    ElasticReplica,
    MomentumReplica,
    Replica,
)
from examples.systems.dist_keras.averaging import AveragingCentre, EnsembleCentre
from examples.systems.dist_keras.oracle import replay
from examples.systems.dist_keras.program import Trained
from examples.systems.dist_keras.server import Server
from examples.systems.dist_keras.training import Rule, Training
from tests.examples.conftest import noise

RECORD = [Commit(0, 0, 0), Commit(1, 0, 1), Commit(1, 2, 0), Commit(0, 1, 2)]


@pytest.fixture(scope="module")
def training() -> Training:
    rules = {
        "DynSGD": Rule(Replica, DynSgdCentre, 0.5, 3, seeds=2),
        "AEASGD": Rule(ElasticReplica, Centre, 0.5, 3, seeds=2),
    }
    return Training(Problem(noise(100), workers=2, steps=6), rules)


@pytest.fixture
def trained(training: Training) -> dict[str, list[Trained]]:
    """What workers return of a run with this record, in which the servers were started again."""
    seen = [[0, 1], [0, 2]]
    results = {}
    for name, rule in training.rules.items():
        done = replay(training, rule, RECORD)
        results[name] = [
            Trained(replica.parameters, seen[worker], done.centre, attempt=2)
            for worker, replica in enumerate(done.replicas)
        ]
    return results


@pytest.mark.parametrize(
    ("kind", "committed", "goes_on_at"),
    [
        (Replica, 2.5 - 10, 2.5),
        (AdagReplica, (2.5 - 10) / 2, 2.5),
        (ElasticReplica, 0.2 * (0.25 - 10), 0.25 - 0.2 * (0.25 - 10)),
        # v = -0.5, x = 0.5; then at x + 0.9 v = 0.05: v = -0.45 - 0.025, x = 0.025
        (MomentumReplica, 0.2 * (0.025 - 10), 0.025 - 0.2 * (0.025 - 10)),
    ],
)
def test_a_worker_commits_what_its_rule_says(kind, committed, goes_on_at) -> None:
    # The gradient of x² / 2 is x, and so a step of 0.5 halves it.
    replica = kind(np.ones(1), lambda x: x, learning_rate=0.5, window=2)

    delta = replica.round(lambda: np.full(1, 10.0))

    assert delta == pytest.approx([committed])
    assert replica.parameters == pytest.approx([goes_on_at])


@pytest.mark.parametrize(
    ("kind", "models"),
    [
        (Centre, [[1 + 6 + 12]]),
        (DynSgdCentre, [[1 + 6 + 12 / 2]]),  # the second comes one update after its pull
        (AveragingCentre, [[1 + (6 + 12) / 2]]),
        (EnsembleCentre, [[7], [13]]),
    ],
)
def test_a_server_makes_of_two_commits_what_its_rule_says(kind, models) -> None:
    centre = kind(np.ones(1), workers=2)

    for worker, delta in enumerate((6.0, 12.0)):
        centre.commit(worker, np.full(1, delta), seen=0)

    assert np.array_equal(centre.models, models)
    assert centre.record == [Commit(0, 0, 0), Commit(1, 0, 1)]


@pytest.mark.usefixtures("in_a_worker")
def test_averaging_answers_a_pull_when_all_have_committed_as_often() -> None:
    server = Server(AveragingCentre(np.zeros(1), workers=2))

    with ThreadPoolExecutor(1) as pool:
        server.commit(0, 0, np.ones(1), 0)
        pulled = pool.submit(server.pull, 1)
        assert server.pull(0) == ([0], 1)  # for one that has not committed yet
        assert not pulled.done()
        server.commit(1, 0, np.full(1, 3.0), 0)

        assert pulled.result(timeout=5) == ([2], 2)


def test_claims_hold_for_what_one_process_has_done_and_for_nothing_else(training, trained) -> None:
    rules, (first, second) = training.rules, trained["DynSGD"]
    of_both = replace(rules["AEASGD"], server=AveragingCentre)
    downpour = replace(rules["DynSGD"], server=Centre)
    alone = replay(training, rules["AEASGD"], RECORD)
    from_older = replay(training, rules["AEASGD"], [each._replace(seen=0) for each in RECORD])

    def counted(record: list[Commit], attempt: int = 2) -> dict[str, list[Trained]]:
        centre = replace(first.centre, record=record)
        return {**trained, "DynSGD": [replace(first, centre=centre, attempt=attempt)] * 2}

    none_is_stale = replace(first.centre, record=[Commit(0, 0, 0), Commit(1, 1, 0)])
    never_stale = [replace(first, centre=none_is_stale, seen=[worker]) for worker in (0, 1)]
    (recorded, _) = trained["AEASGD"]
    other = replace(recorded, centre=replace(recorded.centre, record=RECORD[::-1]))
    claims.check_counted(training, trained)
    claims.check_staleness(trained)
    claims.check_replay("AEASGD", trained["AEASGD"], alone)
    claims.check_elastic("AEASGD", alone)

    without_division = replay(training, downpour, RECORD)
    sum_changes = replay(training, of_both, RECORD)
    stale_by_one = {**trained, "DynSGD": [first, replace(second, seen=[0, 1])]}
    for wrong, check in (
        ("4 commits, 0 of 3", lambda: claims.check_replay("AEASGD", trained["AEASGD"], from_older)),
        ("DynSGD, rep", lambda: claims.check_replay("DynSGD", [first, second], without_division)),
        ("7 commits, 1 lost", lambda: claims.check_counted(training, counted(RECORD[:-1]))),
        (
            "9 commits, 1 lost",
            lambda: claims.check_counted(training, counted([*RECORD, Commit(1, 3, 1)])),
        ),
        ("attempt 1 of all", lambda: claims.check_counted(training, counted(RECORD, attempt=1))),
        ("8 commits, 1 recorded otherwise", lambda: claims.check_staleness(stale_by_one)),
        ("stale commits.*; 0 of 2", lambda: claims.check_staleness({"DynSGD": never_stale})),
        ("changes the sum of worker", lambda: claims.check_elastic("AEASGD", sum_changes)),
        ("0.950 0.939 0.970", lambda: claims.check_accuracy("ADAG", [0.95, 0.939, 0.97])),
        (r"through lp\.edges\.Replay", lambda: claims.check_order(recorded, other)),
    ):
        with pytest.raises(ArithmeticError, match=wrong):
            check()


def test_models_that_vote_are_read_by_the_mean_of_their_probabilities(training) -> None:
    digits = training.problem.training
    one, other = (networks.first_parameters(training.problem.widths, seed) for seed in (1, 2))
    probabilities = 0.0
    for parameters in (one, other):
        scores = np.exp(networks.forward(training.problem.widths, parameters, digits.inputs)[-1])
        probabilities = probabilities + scores / scores.sum(axis=1, keepdims=True)

    (share,) = claims.accuracies(training, [one[None], other[None]], digits)

    assert share == (np.argmax(probabilities, axis=1) == digits.targets).mean()
