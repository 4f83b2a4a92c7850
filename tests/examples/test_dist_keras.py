from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import numpy as np
import pytest

from examples._shared.problem import Problem
from examples.systems.dist_keras import claims
from examples.systems.dist_keras.algorithm import (
    RULES,
    AdagReplica,
    AveragingCentre,
    Centre,
    Commit,
    DynSgdCentre,
    ElasticReplica,
    MomentumReplica,
    Replica,
)
from examples.systems.dist_keras.oracle import replay
from examples.systems.dist_keras.server import Server
from examples.systems.dist_keras.worker import Trained
from tests.examples.conftest import assert_refused, noise

RECORD = [Commit(0, 0), Commit(1, 0), Commit(1, 2), Commit(0, 1)]
PROBLEM = Problem(noise(100), workers=2, steps=10)


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
    ("kind", "parameters"),
    [
        (Centre, 1 + 6 + 12),
        (DynSgdCentre, 1 + 6 + 12 / 2),  # the second comes one update after its pull
        (AveragingCentre, 1 + (6 + 12) / 2),
    ],
)
def test_a_server_makes_of_two_commits_what_its_rule_says(kind, parameters) -> None:
    centre = kind(np.ones(1), workers=2)

    for worker, delta in enumerate((6.0, 12.0)):
        centre.commit(worker, np.full(1, delta), seen=0)

    assert centre.parameters.tolist() == [parameters]
    assert centre.record == [Commit(0, 0), Commit(1, 0)]
    assert centre.staleness == [0, 1]


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


def test_claims_hold_for_what_the_formulas_say_and_for_nothing_else() -> None:
    alone = {name: replay(PROBLEM, name, RECORD) for name in RULES}

    def workers(name: str, record: list[Commit] = RECORD, attempt: int = 2) -> list[Trained]:
        centres, replicas = alone[name]
        centre = Centre(centres[-1], 2, record)
        return [Trained(replica, centre, attempt) for replica in replicas]

    problem = replace(PROBLEM, steps=2 * RULES["DynSGD"].window)
    counted = {"DynSGD": workers("DynSGD")}
    for name in RULES:
        claims.check_replay(name, workers(name), alone[name])

    assert_refused(
        *(
            lambda name=name: claims.check_replay(name, workers(name), alone["averaging"])
            for name in RULES
            if name != "averaging"
        ),
        lambda: claims.check_counted(problem, counted),  # the other rules have no commits
    )


def test_a_commit_that_is_missing_or_doubled_and_a_server_that_was_not_killed_are_refused() -> None:
    problem = replace(PROBLEM, steps=60)  # each rule has at least two rounds

    def trained(attempt: int = 2, **other: list[Commit]) -> dict[str, list[Trained]]:
        records = {
            name: [Commit(i, 0) for i in (0, 1) for _ in range(problem.steps // rule.window)]
            for name, rule in RULES.items()
        }
        records.update(other)
        zeros = np.zeros(1)
        return {
            name: [Trained(zeros, Centre(zeros, 2, record), attempt)]
            for name, record in records.items()
        }

    claims.check_counted(problem, trained())

    assert_refused(
        lambda: claims.check_counted(problem, trained(averaging=RECORD[:3])),
        lambda: claims.check_counted(problem, trained(averaging=[*RECORD, Commit(1, 3)])),
        lambda: claims.check_counted(problem, trained(attempt=1)),
    )
