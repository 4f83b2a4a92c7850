"""Checks of the paper's claims, on the driver's result and on the traffic over the edges."""

import hashlib
from collections.abc import Iterable, Mapping, Sequence

import numpy as np

import launchpad as lp
from examples._shared import networks
from examples._shared.checks import check
from examples._shared.data import Array, Data
from examples.systems.big_dl import quantized
from examples.systems.big_dl.algorithm import Task
from examples.systems.big_dl.program import Result, Trained

TOLERANCE = 1e-12
POINTS_LOST = 0.005


def check_parameters(results: Mapping[int, Result], alone: Array) -> None:
    """Check that runs learn the same bits, and only rounding separates them from one process."""
    numbers = ", ".join(map(str, results))
    difference = max(np.abs(each.trained.parameters - alone).max() for each in results.values())
    check(
        bool(difference <= TOLERANCE),
        f"{numbers} executors learn what one process learns from whole batches, to {TOLERANCE:g}",
        f"largest difference {difference:.1e}",
    )
    sums = digests(results.values())
    check(len(sums) == 1, f"{numbers} executors learn the same bits", f"sha256 {' '.join(sums)}")


def digests(results: Iterable[Result]) -> list[str]:
    """Return the different digests of the results' parameters: one, if all are equal."""
    all_bytes = {each.trained.parameters.tobytes() for each in results}
    return sorted(hashlib.sha256(each).hexdigest()[:12] for each in all_bytes)


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


def check_dispatches(results: Mapping[int | None, Result], iterations: int) -> None:
    """Check that groups of k iterations differ from single jobs (None) only in the driver's calls."""
    executors = len(results[None].trained.made)
    calls = {
        k: each.edges.total(caller="driver", method="execute").calls / iterations
        for k, each in results.items()
    }
    check(
        calls == {k: executors / k if k else 2 * executors for k in results},
        "with groups of k iterations the driver makes N/k calls per iteration, and with single jobs 2N",
        ", ".join(
            f"{f'k={k}' if k else 'single jobs'} {calls[k]:g} (and {each.trained.seconds:.3f} s by the clock)"
            for k, each in results.items()
        ),
    )
    sums = digests(results.values())
    check(len(sums) == 1, "groups of iterations learn the same bits", f"sha256 {' '.join(sums)}")


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


def check_int8(widths: Sequence[int], parameters: Array, held_out: Data) -> None:
    """Check that the network in int8 recognises nearly as many digits, from fewer bytes."""
    layers = quantized.quantize(widths, parameters)
    accuracy = networks.accuracy(widths, parameters, held_out)
    accuracy_in_int8 = quantized.accuracy(layers, held_out)
    n_bytes = sum(a.nbytes for layer in layers for a in layer)
    n_bytes_float32 = 4 * len(parameters)
    check(
        accuracy - accuracy_in_int8 <= POINTS_LOST and n_bytes <= n_bytes_float32 / 3.5,
        f"in int8 at most {POINTS_LOST:.1%} fewer of {len(held_out)} held-out digits are recognised",
        f"{accuracy_in_int8:.3f} instead of {accuracy:.3f}; {n_bytes:,} bytes instead of"
        f" {n_bytes_float32:,} in float32",
    )
