"""Checks of the papers' claims, on the ranks' results and on the traffic over the edges."""

from collections.abc import Sequence

import numpy as np

import launchpad as lp
from examples._shared.checks import check
from examples._shared.data import Array
from examples.systems.horovod.program import Trained, Training


def check_equal_bits(ranks: Sequence[Trained]) -> None:
    """Check that all ranks end the same, though each began with other weights and saw other digits."""
    digests = sorted({trained.sha256 for trained in ranks})
    check(
        len(digests) == 1,
        f"all {len(ranks)} ranks end with the same bits",
        f"sha256 {', '.join(digest[:12] for digest in digests)}",
    )


def check_near(parameters: Array | None, expected: Array, tolerance: float, claim: str) -> None:
    """Check that the parameters differ by rounding at most."""
    assert parameters is not None
    difference = np.abs(parameters - expected).max()
    check(
        bool(difference <= tolerance),
        f"{claim}, to {tolerance:g}",
        f"largest difference {difference:.1e}",
    )


def check_bytes(edges: lp.edges.Edges, ranks: int, training: Training) -> None:
    """Check that a rank gets the least possible, in calls of the others and in answers to its own."""
    first = training.first_parameters
    size = training.steps * first.size * np.dtype(training.wire).itemsize
    shares = []
    for rank in range(ranks):
        n_in_calls = edges.total(server=f"rank-{rank}").bytes_sent
        n_in_answers = edges.total(caller=f"rank-{rank}", server="rank").bytes_received
        broadcast = 2 * first.nbytes if rank else 0  # parameters and velocity, at the beginning
        shares.append((n_in_calls + n_in_answers - broadcast) / size)
    least = 2 * (ranks - 1) / ranks
    check(
        all(abs(share / least - 1) <= 0.01 for share in shares),
        f"each of {ranks} ranks gets 2(N-1)/N = {least:.4f} of the gradients at each step",
        f"{' '.join(f'{share:.4f}' for share in shares)}, in {training.wire}",
    )


def check_fusion(trained: Trained, training: Training) -> None:
    """Check that small tensors travel together, and during the rest of backward."""
    n_tensors = 2 * (len(training.widths) - 1)
    n_messages = len(trained.left_at) // training.steps
    check(
        n_messages < n_tensors,
        "there are fewer messages than tensors",
        f"{n_tensors} tensors in {n_messages} all-reduces",
    )
    check(
        trained.left_at[0] < n_tensors,
        "the first message leaves while backward still runs",
        f"it leaves after {trained.left_at[0]} of {n_tensors} gradients",
    )


def check_kill(disturbed: Sequence[Trained], undisturbed: Sequence[Trained]) -> None:
    """Check that ranks that were started again went on where rank 0 had saved."""
    n_same = sum(a.sha256 == b.sha256 for a, b in zip(disturbed, undisturbed, strict=True))
    generation = min(trained.generation for trained in disturbed)
    check(
        n_same == len(undisturbed) and generation > 1,
        "a rank that is killed changes no bit of the result",
        f"{n_same} of {len(undisturbed)} ranks equal the undisturbed ones, in generation {generation}",
    )
