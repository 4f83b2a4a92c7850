from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import launchpad as lp
from examples._shared import networks
from examples._shared.digits import Digits
from examples._shared.problem import Problem
from examples.dist_keras import claims
from examples.dist_keras.algorithm import (
    AdagReplica,
    Centre,
    Commit,
    DynSgdCentre,
    ElasticReplica,
    MomentumReplica,
    Replica,
)
from examples.dist_keras.averaging import AveragingCentre, EnsembleCentre
from examples.dist_keras.on_digits import METHODS
from examples.dist_keras.oracle import replay
from examples.dist_keras.program import Trained
from examples.dist_keras.server import Server
from examples.dist_keras.training import Rule, Training

RECORD = [Commit(0, 0, 0), Commit(1, 0, 1), Commit(1, 2, 0), Commit(0, 1, 2)]


@pytest.fixture(scope="module")
def training() -> Training:
    rng = np.random.default_rng(0)
    images = Digits(rng.random((100, 64)), rng.integers(10, size=100))
    rules = {
        "DynSGD": Rule(Replica, DynSgdCentre, 0.5, 3, seeds=2),
        "AEASGD": Rule(ElasticReplica, Centre, 0.5, 3, seeds=2),
    }
    return Training(Problem(images, workers=2, steps=6), rules)


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


@pytest.fixture
def in_a_worker(tmp_path: Path) -> Iterator[None]:
    with lp.testing.worker("server", state=tmp_path):
        yield


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
def test_a_commit_that_is_sent_again_to_the_next_attempt_of_a_server_counts_once() -> None:
    first = Server(DynSgdCentre(np.zeros(1), workers=2))
    first.commit(0, 0, np.ones(1), 0)  # killed before it has answered

    second = Server(DynSgdCentre(np.zeros(1), workers=2))
    second.commit(0, 0, np.ones(1), 0)
    second.commit(1, 0, np.ones(1), 0)

    assert second.pull(1) == ([1.5], 2)
    assert second.trained()[0].record == [Commit(0, 0, 0), Commit(1, 0, 1)]


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


def test_a_replay_from_other_versions_than_were_pulled_gives_other_bits(training, trained) -> None:
    rule = training.rules["AEASGD"]
    wrong = replay(training, rule, [commit._replace(seen=0) for commit in RECORD])

    with pytest.raises(
        ArithmeticError, match=r"AEASGD, replayed by one process .* 4 commits, 0 of 3"
    ):
        claims.check_replay("AEASGD", trained["AEASGD"], wrong)


def test_a_replay_that_divides_no_stale_commit_gives_other_bits(training, trained) -> None:
    downpour = replace(training.rules["DynSGD"], server=Centre)

    with pytest.raises(ArithmeticError, match="DynSGD, replayed by one process"):
        claims.check_replay("DynSGD", trained["DynSGD"], replay(training, downpour, RECORD))


def test_claims_hold_for_what_one_process_has_done(training, trained) -> None:
    claims.check_counted(training, trained)
    claims.check_staleness(trained)
    alone = replay(training, training.rules["AEASGD"], RECORD)
    claims.check_replay("AEASGD", trained["AEASGD"], alone)
    claims.check_elastic("AEASGD", alone)


@pytest.mark.parametrize(
    ("record", "attempt", "wrong"),
    [
        (RECORD[:-1], 2, "7 commits, 1 lost"),
        ([*RECORD, Commit(1, 3, 1)], 2, "9 commits, 1 lost"),
        (RECORD, 1, "attempt 1 of all"),
    ],
)
def test_a_commit_that_is_lost_or_counted_twice_or_no_kill_is_refused(
    training, trained, record, attempt, wrong
) -> None:
    of_server = {"centre": replace(trained["DynSGD"][0].centre, record=record), "attempt": attempt}
    workers = [replace(worker, **of_server) for worker in trained["DynSGD"]]

    with pytest.raises(ArithmeticError, match=wrong):
        claims.check_counted(training, {**trained, "DynSGD": workers})


def test_a_staleness_that_is_not_that_of_the_worker_s_pull_is_refused(trained) -> None:
    first, second = trained["DynSGD"]

    with pytest.raises(ArithmeticError, match="8 commits, 1 of them otherwise"):
        claims.check_staleness({**trained, "DynSGD": [first, replace(second, seen=[0, 1])]})


def test_a_run_in_which_nothing_is_stale_is_refused(trained) -> None:
    record = [Commit(0, 0, 0), Commit(1, 1, 0)]
    centre = replace(trained["DynSGD"][0].centre, record=record)
    workers = [replace(w, centre=centre, seen=[i]) for i, w in enumerate(trained["DynSGD"])]

    with pytest.raises(ArithmeticError, match=r"DynSGD has stale commits to divide.*; 0 of 2"):
        claims.check_staleness({"DynSGD": workers})


def test_an_exchange_that_gives_the_centre_more_than_it_takes_is_refused(training) -> None:
    of_both = replace(training.rules["AEASGD"], server=AveragingCentre)

    with pytest.raises(ArithmeticError, match="changes the sum of worker and centre"):
        claims.check_elastic("AEASGD", replay(training, of_both, RECORD))


def test_one_seed_that_is_read_badly_is_refused() -> None:
    with pytest.raises(ArithmeticError, match=r"on each of 3 seeds; 0\.950 0\.939 0\.970"):
        claims.check_accuracy("ADAG", [0.95, 0.939, 0.97])


def test_another_order_is_refused(trained) -> None:
    first, _ = trained["AEASGD"]
    other = replace(first, centre=replace(first.centre, record=RECORD[::-1]))

    with pytest.raises(ArithmeticError, match=r"through lp\.edges\.Replay"):
        claims.check_order(first, other)


def test_models_that_vote_are_read_by_the_mean_of_their_probabilities(training) -> None:
    digits = training.problem.training
    one, other = (networks.first_parameters(training.problem.widths, seed) for seed in (1, 2))
    probabilities = 0.0
    for parameters in (one, other):
        scores = np.exp(networks.forward(training.problem.widths, parameters, digits.images)[-1])
        probabilities = probabilities + scores / scores.sum(axis=1, keepdims=True)

    (share,) = claims.accuracies(training, [one[None], other[None]], digits)

    assert share == (np.argmax(probabilities, axis=1) == digits.labels).mean()


@pytest.mark.slow
def test_a_rule_learns_the_problem_of_all_parameter_servers_though_its_server_is_killed() -> None:
    problem = Problem(steps=100)

    learned = METHODS["dist_keras, AEASGD"](problem, True)

    assert networks.accuracy(problem.widths, learned.parameters, problem.training) >= 0.94
    assert learned.staleness >= 1
    assert learned.edges.total(method="commit").calls == 40


def test_a_run_whose_server_was_to_be_killed_and_was_not_is_refused(training, monkeypatch) -> None:
    monkeypatch.setenv("LP_LAUNCH_TYPE", "test_mt")
    monkeypatch.setattr(lp.testing, "crash", lambda: None)

    with pytest.raises(RuntimeError, match="the server of ADAG was to be killed half-way"):
        METHODS["dist_keras, ADAG"](training.problem, True)


@pytest.mark.slow
def test_dist_keras_gives_the_same_bits_when_replayed_alone_though_its_servers_are_killed(
    run_system, launch_type
) -> None:
    printed = run_system("dist_keras", launch_type)

    assert "504 commits, 0 lost or counted twice, attempt 2 of all servers" in printed
    for name in ("DOWNPOUR", "ADAG", "DynSGD", "AEASGD", "EAMSGD", "averaging", "ensemble"):
        assert f"ok    {name}, replayed by one process in the recorded order" in printed
    for name in ("ADAG", "DynSGD", "AEASGD"):
        assert f"ok    {name} reads 0.94 of the held-out digits at least" in printed
    assert "ok    no exchange of AEASGD changes the sum" in printed
    assert "DOWNPOUR reads" in printed
    # A pod writes to a disk of its own, and the example says so.
    is_replayed = "ok    the same program, run again through lp.edges.Replay" in printed
    assert is_replayed == ("not run again by lp.edges.Replay" not in printed)
    assert is_replayed or launch_type == "kubernetes"
