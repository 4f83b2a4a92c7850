"""Checks of what the workers have learned."""

import hashlib
from collections.abc import Sequence

import numpy as np

from examples._shared import digits
from examples._shared.checks import check
from examples._shared.data import Array, Data
from examples._shared.problem import Problem
from examples.ps.shards import Report
from examples.ps.worker import Trained

WANTED_ACCURACY = 0.95
TOLERANCE = 1e-6
ROUNDING = 1e-12
SLACK = 2  # of mode ssp


def check_learned(workers: Sequence[Trained], problem: Problem, mode: str) -> None:
    """Raise unless the workers have learned what they should."""
    trained = workers[0]
    check_applied(trained.shards, problem)
    check_sum(workers, problem)
    print(f"sha256 of the parameters: {hashlib.sha256(trained.parameters.tobytes()).hexdigest()}")
    if mode == "sync":
        check_equals_large_batch(trained.parameters, problem)
    if mode == "ssp":
        check_staleness(trained.staleness, problem)
    if mode == "async":
        check_waits(trained.shards)
    check_accuracy(trained.parameters, problem, digits.load()[1])


def check_applied(shards: Sequence[Report], problem: Problem) -> None:
    """Check that every shard has applied each gradient of every worker exactly once."""
    check(
        all(count == problem.steps for shard in shards for count in shard.applied),
        f"each shard applies {problem.steps} gradients of every worker, each once",
        " + ".join(str(sum(shard.applied)) for shard in shards),
    )


def check_sum(workers: Sequence[Trained], problem: Problem) -> None:
    """Check that nothing else is in the parameters, whatever the shards have counted."""
    total = sum(worker.pushed for worker in workers)
    expected = problem.first_parameters - problem.learning_rate / problem.workers * total
    difference = float(np.abs(workers[0].parameters - expected).max())
    check(
        difference <= ROUNDING,
        "the parameters are the sum of all gradients that the workers say they have pushed",
        f"largest difference {difference:.1e}",
    )


def check_killed(trained: Trained) -> None:
    """Check that the first shard was killed, so that there was something to survive."""
    attempts = [shard.attempt for shard in trained.shards]
    check(
        attempts[0] == 2,
        "all this holds although the first shard was killed",
        f"shards have ended in attempts {attempts}",
    )


def check_equals_large_batch(parameters: Array, problem: Problem) -> None:
    """Check that one process, training on the whole batches, arrives at the same parameters."""
    difference = float(np.abs(parameters - problem.train_alone()).max())
    check(
        difference <= TOLERANCE,
        f"workers in step learn what one process learns from large batches, to {TOLERANCE:g}",
        f"largest difference {difference:.1e}",
    )


def check_staleness(staleness: int, problem: Problem) -> None:
    """Check that while a worker makes a gradient, each of the others adds 2 × slack + 1 at most."""
    # At a worker's last answer another was up to `slack` behind it. At its push that one is up to slack + 1
    # ahead of it.
    most = (problem.workers - 1) * (2 * SLACK + 1)
    check(
        staleness <= most,
        f"at most {most} gradients come between a worker's pull and its own gradient",
        f"{staleness}",
    )


def check_waits(shards: Sequence[Report]) -> None:
    """Check that each gradient was applied at once."""
    n_waits = [shard.n_waits for shard in shards]
    check(not any(n_waits), "no worker waits for others", f"{n_waits} waits at the shards")


def check_accuracy(parameters: Array, problem: Problem, held_out: Data) -> None:
    """Check that the network recognises enough of the held-out digits."""
    accuracy = problem.accuracy(parameters, held_out)
    check(
        accuracy >= WANTED_ACCURACY,
        f"at least {WANTED_ACCURACY} of {len(held_out)} held-out digits are recognised",
        f"{accuracy:.3f}",
    )
