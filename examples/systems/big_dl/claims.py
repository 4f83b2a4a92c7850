"""What the paper claims, checked on what the driver has returned and on what has gone over the edges."""

import hashlib
from collections.abc import Iterable, Mapping, Sequence

import numpy as np

import launchpad as lp
from examples._shared import networks
from examples._shared.checks import check
from examples._shared.digits import Array, Digits
from examples.systems.big_dl import quantized
from examples.systems.big_dl.algorithm import Task
from examples.systems.big_dl.program import Result, Trained

TOLERANCE = 1e-12
POINTS_LOST = 0.005


def check_parameters(results: Mapping[int, Result], alone: Array) -> None:
    """Adding up in another order is all that may differ from one process; among each other nothing may."""
    numbers = ", ".join(map(str, results))
    difference = max(np.abs(each.trained.parameters - alone).max() for each in results.values())
    check(
        bool(difference <= TOLERANCE),
        f"{numbers} executors learn what one process learns from whole batches, to {TOLERANCE:g}",
        f"largest difference {difference:.1e}",
    )
    found = digests(results.values())
    check(len(found) == 1, f"{numbers} executors learn the same bits", f"sha256 {' '.join(found)}")


def digests(results: Iterable[Result]) -> list[str]:
    """Return those of the parameters, if they are one or several."""
    all_bytes = {each.trained.parameters.tobytes() for each in results}
    return sorted(hashlib.sha256(each).hexdigest()[:12] for each in all_bytes)


def check_bytes(edges: lp.edges.Edges, executors: int, n_bytes: int) -> None:
    """An executor gets the least that is possible; `n_bytes` has the parameters once an iteration."""
    shares = []
    for i in range(executors):
        asked = edges.total(caller="executor", server=f"executor-{i}").bytes_sent
        answered = edges.total(caller=f"executor-{i}", server="executor").bytes_received
        shares.append((asked + answered) / n_bytes)
    least = 2 * (executors - 1) / executors
    check(
        all(abs(share - least) <= 0.01 * least for share in shares),
        f"each of {executors} executors gets 2(N-1)/N = {least:.4f} of the parameters in an iteration",
        f"{min(shares):.4f} to {max(shares):.4f}",
    )


def check_dispatches(results: Mapping[int | None, Result], iterations: int) -> None:
    """Groups of k iterations or single jobs (None): how often the driver calls is all that differs."""
    executors = len(results[None].trained.made)
    calls = {
        k: each.edges.total(caller="driver", method="execute").calls / iterations
        for k, each in results.items()
    }
    check(
        calls == {k: executors / k if k else 2 * executors for k in results},
        "groups of k iterations take N/k calls of the driver an iteration, and single jobs 2N",
        ", ".join(
            f"{f'k={k}' if k else 'single jobs'} {calls[k]:g} (and {each.trained.seconds:.3f} s by the clock)"
            for k, each in results.items()
        ),
    )
    found = digests(results.values())
    check(len(found) == 1, "groups of iterations learn the same bits", f"sha256 {' '.join(found)}")


def check_kills(
    disturbed: Trained, undisturbed: Trained, deadly: Sequence[Task], group: int
) -> None:
    """Executors that died in these tasks leave no trace, but that they made some tasks again."""
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
        [made + n for made, n in zip(disturbed.made, saved, strict=True)] == undisturbed.made,
        "only tasks of killed executors are run again, from where these had saved",
        f"{disturbed.made} tasks in the last attempts, of {undisturbed.made}",
    )


def check_int8(widths: Sequence[int], parameters: Array, held_out: Digits) -> None:
    """A network in int8 reads as well, from fewer bytes."""
    layers = quantized.quantize(widths, parameters)
    read = networks.accuracy(widths, parameters, held_out)
    read_in_int8 = quantized.accuracy(layers, held_out)
    n_bytes, n_bytes_float32 = sum(a.nbytes for layer in layers for a in layer), 4 * len(parameters)
    check(
        read - read_in_int8 <= POINTS_LOST and n_bytes <= n_bytes_float32 / 3.5,
        f"in int8 at most {POINTS_LOST:.1%} of {len(held_out)} held-out digits are lost",
        f"{read_in_int8:.3f} read, {read:.3f} before; {n_bytes:,} bytes, {n_bytes_float32:,} in float32",
    )
