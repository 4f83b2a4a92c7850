"""Checks of the claims of dist-keras about its rules, on the results of workers."""

from collections import Counter
from collections.abc import Mapping, Sequence

import numpy as np

from examples._shared import networks
from examples._shared.checks import check
from examples._shared.data import Array, Data
from examples.systems.dist_keras.oracle import Replayed
from examples.systems.dist_keras.program import Trained
from examples.systems.dist_keras.training import Training

WANTED_ACCURACY = 0.94
ROUNDING = 1e-14

Workers = Sequence[Trained]  # the results of all workers for one rule


def check_counted(training: Training, trained: Mapping[str, Workers]) -> None:
    """Check that servers that were killed have each commit exactly once."""
    wrong = 0
    total = 0
    for name, workers in trained.items():
        counted = Counter(commit.worker for commit in workers[0].centre.record)
        rounds = training.rounds(training.rules[name])
        wrong += sum(abs(counted[worker] - rounds) for worker in range(len(workers)))
        total += counted.total()
    attempt = min(workers[0].attempt for workers in trained.values())
    check(
        wrong == 0 and attempt > 1,
        "servers that are killed lose no commit, and count none twice",
        f"{total} commits, {wrong} lost or counted twice, attempt {attempt} of all servers",
    )


def check_replay(name: str, workers: Workers, alone: Replayed) -> None:
    """Check that the centre, its record and the workers' replicas are those of one process."""
    centre = workers[0].centre
    replicas = [each.parameters for each in alone.replicas]
    arrays = [*centre.models, *(worker.replica for worker in workers)]
    expected = [*alone.centre.models, *replicas]
    n_same = sum(a.tobytes() == b.tobytes() for a, b in zip(arrays, expected, strict=False))
    check(
        n_same == len(arrays) == len(expected) and centre.record == alone.centre.record,
        f"{name}, replayed by one process in the recorded order, gives the same bits",
        f"{len(centre.record)} commits, {n_same} of {len(expected)} models equal",
    )


def check_staleness(trained: Mapping[str, Workers]) -> None:
    """Check the staleness in the server's record against what the workers have noted themselves."""
    wrong = 0
    total = 0
    for workers in trained.values():
        pulls = [iter(worker.seen) for worker in workers]
        for number, commit in enumerate(workers[0].centre.record):
            wrong += commit.staleness != number - next(pulls[commit.worker])
            total += 1
    check(
        wrong == 0,
        "the staleness that a server records is the number of updates since the worker's pull",
        f"{total} commits, {wrong} recorded otherwise",
    )
    staleness = [commit.staleness for commit in trained["DynSGD"][0].centre.record]
    check(
        max(staleness) >= 1,
        "DynSGD has stale commits, which it divides by 1 + staleness",
        f"{sum(map(bool, staleness))} of {len(staleness)} commits; the largest divisor is"
        f" {max(staleness) + 1}",
    )


def check_elastic(name: str, alone: Replayed) -> None:
    """Check that the centre gains what the worker loses."""
    check(
        max(alone.moved) <= ROUNDING,
        f"no exchange of {name} changes the sum of worker and centre, except for rounding",
        f"at most {max(alone.moved):.1e}, in {len(alone.moved)} exchanges",
    )


def check_accuracy(name: str, reached: Sequence[float]) -> None:
    """Check that all seeds reach the wanted accuracy."""
    check(
        min(reached) >= WANTED_ACCURACY,
        f"{name} recognises at least {WANTED_ACCURACY} of the held-out digits with each of"
        f" {len(reached)} seeds",
        show(reached),
    )


def check_order(recorded: Trained, replayed: Trained) -> None:
    """Check that a run that keeps to the recorded order of calls gives the same bits."""
    check(
        recorded.centre.record == replayed.centre.record
        and np.array_equal(recorded.centre.parameters, replayed.centre.parameters),
        "the same program, run again through lp.edges.Replay, gives the same bits",
        f"{len(recorded.centre.record)} commits of DynSGD",
    )


def accuracies(training: Training, models: Sequence[Array], held_out: Data) -> list[float]:
    """Return, for each seed, the share of digits that the models recognise by their mean vote."""
    shares = []
    for of_seed in zip(*models, strict=True):
        votes = np.zeros((len(held_out), 10))
        for parameters in of_seed:
            probabilities = np.exp(
                networks.forward(training.problem.widths, parameters, held_out.inputs)[-1]
            )
            votes += probabilities / probabilities.sum(axis=1, keepdims=True)
        shares.append(float((votes.argmax(axis=1) == held_out.targets).mean()))
    return shares


def lowest(training: Training, versions: Sequence[Array], held_out: Data) -> list[float]:
    """Return, for each seed, the lowest accuracy of the centre in the second half of the training."""
    late = [accuracies(training, [version], held_out) for version in versions[len(versions) // 2 :]]
    return [min(of_seed) for of_seed in zip(*late, strict=True)]


def show(shares: Sequence[float]) -> str:
    """Return the shares as text, with three decimals each."""
    return " ".join(f"{share:.3f}" for share in shares)
