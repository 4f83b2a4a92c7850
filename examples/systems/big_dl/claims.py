"""Checks of the paper's claims, on the driver's result and on the traffic over the edges."""

import hashlib
from collections.abc import Iterable, Mapping, Sequence

import numpy as np

import launchpad as lp
from examples._shared.checks import check
from examples._shared.data import Array
from examples.systems.big_dl.algorithm import Task
from examples.systems.big_dl.driver import Trained

TOLERANCE = 1e-12


def check_parameters(results: Mapping[int, Trained], alone: Array) -> None:
    """Check that runs learn the same bits, and only rounding separates them from one process."""
    numbers = ", ".join(map(str, results))
    difference = max(np.abs(each.parameters - alone).max() for each in results.values())
    check(
        bool(difference <= TOLERANCE),
        f"{numbers} executors learn what one process learns from whole batches, to {TOLERANCE:g}",
        f"largest difference {difference:.1e}",
    )
    check_same_bits(f"{numbers} executors learn the same bits", results.values())


def check_same_bits(claim: str, results: Iterable[Trained]) -> None:
    """Check that there is one digest of all results' parameters."""
    digests = {hashlib.sha256(each.parameters.tobytes()).hexdigest()[:12] for each in results}
    check(len(digests) == 1, claim, f"sha256 {' '.join(sorted(digests))}")


def check_bytes(edges: lp.edges.Edges, executors: int, n_bytes: int) -> None:
    """Check that an executor gets the least possible share of `n_bytes`, the parameters of all iterations."""
    shares = []
    for i in range(executors):
        n_in_calls = edges.total(caller="executor", server=f"executor-{i}").bytes_sent
        n_in_answers = edges.total(caller=f"executor-{i}", server="executor").bytes_received
        shares.append((n_in_calls + n_in_answers) / n_bytes)
    least = 2 * (executors - 1) / executors
    check(
        all(abs(share - least) <= 0.01 * least for share in shares),
        f"each of {executors} executors gets 2(N-1)/N = {least:.4f} of the parameters in an iteration",
        f"{min(shares):.4f} to {max(shares):.4f}",
    )


def check_dispatches(calls: Mapping[int | None, float], executors: int) -> None:
    """Check the driver's calls per iteration with groups of k iterations, and with single jobs (None)."""
    check(
        calls == {k: executors / k if k else 2 * executors for k in calls},
        "with groups of k iterations the driver makes N/k calls per iteration, and with single jobs 2N",
        ", ".join(f"{f'k={k}' if k else 'single jobs'} {calls[k]:g}" for k in calls),
    )


def check_kills(
    disturbed: Trained, undisturbed: Trained, deadly: Sequence[Task], group: int
) -> None:
    """Check that executors that died in these tasks changed nothing, and ran only their own tasks again."""
    n_same = int((disturbed.parameters == undisturbed.parameters).sum())
    killed = {task.executor: task.iteration for task in deadly}
    attempts = [2 if i in killed else 1 for i in range(len(disturbed.attempts))]
    check(
        n_same == len(undisturbed.parameters) and disturbed.attempts == attempts,
        f"executors that are killed in {' and '.join(task.job for task in deadly)} change no bit",
        f"{n_same:,} of {len(undisturbed.parameters):,} parameters are equal, attempts {disturbed.attempts}",
    )
    saved = [2 * (killed.get(i, 0) // group * group) for i in range(len(attempts))]
    check(
        [n_made + n for n_made, n in zip(disturbed.made, saved, strict=True)] == undisturbed.made,
        "only tasks of killed executors are run again, and only those after the last save",
        f"{disturbed.made} tasks in the last attempts, of {undisturbed.made}",
    )
