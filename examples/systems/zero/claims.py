"""Checks of the paper's claims."""

from collections.abc import Sequence

import numpy as np

from examples._shared.checks import check
from examples._shared.data import Array
from examples.systems.zero.memory import Memory
from examples.systems.zero.program import SAVED_AT, Resumed

KEPT = (("Ψ", "Ψ", "2Ψ"), ("Ψ", "Ψ", "2Ψ/N"), ("Ψ", "Ψ/N", "2Ψ/N"), ("Ψ/N", "Ψ/N", "2Ψ/N"))
"""By stage: parameters, gradients, Adam's state."""

TOLERANCE = 1e-12


def check_weights(claim: str, ranks: Sequence[Array], expected: Array) -> None:
    """Check that all ranks have reached the expected parameters."""
    worst = float(np.abs(np.stack(ranks) - expected).max())
    check(worst <= TOLERANCE, claim, f"the largest difference is {worst:.0e}")


def check_memory(stage: int, ranks: Sequence[Memory], layers: Sequence[int]) -> None:
    """Check that each rank keeps what the table says, and has one layer at a time of the rest."""
    n = len(ranks)
    size = sum(layer + -layer % n for layer in layers)  # with the zeros that are added
    units = {"Ψ": size, "2Ψ": 2 * size, "Ψ/N": size // n, "2Ψ/N": 2 * size // n}
    sizes = tuple(units[unit] for unit in KEPT[stage])
    one_layer = (max(layers) * (stage >= 3), max(layers) * (stage >= 2))
    check(
        all(rank == sizes + one_layer for rank in ranks),
        "each of {} ranks at stage {} keeps {} parameters, {} gradients and {} of Adam's state, and at most"
        " one layer of everything else at a time".format(n, stage, *KEPT[stage]),
        "{:,} parameters, {:,} gradients, {:,} of Adam's state; at a time {:,} other parameters and {:,}"
        " other gradients".format(*ranks[0]),
    )


def check_traffic(shares: Array, n: int) -> None:
    """Check that all stages send as much as an all-reduce of the gradients, and the last 1.5 times that."""
    check(
        bool(np.allclose(shares / (2 * (n - 1) / n), [1, 1, 1, 1.5], rtol=0.01)),
        f"stages 0, 1, 2, 3 send 1, 1, 1, 1.5 times 2Ψ(N-1)/N, N = {n}",
        "a rank has sent " + ", ".join(f"{amount:.3f} Ψ" for amount in shares) + " in a step",
    )


def check_kill(ranks: Sequence[Resumed], undisturbed: Array) -> None:
    """Check that the second generation went on from what was saved, to the same bits."""
    check(
        all((rank.generation, rank.began_at) == (2, SAVED_AT) for rank in ranks)
        and all(rank.weights.tobytes() == undisturbed.tobytes() for rank in ranks),
        "a rank that is killed changes no bit",
        f"generation {ranks[0].generation} has gone on from step {ranks[0].began_at}",
    )


def check_fewer(ranks: Sequence[Resumed], saved_by: int, expected: Array) -> None:
    """Check that fewer ranks went on from what was saved, to the same parameters."""
    worst = float(np.abs(np.stack([rank.weights for rank in ranks]) - expected).max())
    check(
        worst <= TOLERANCE and all(rank.began_at == SAVED_AT for rank in ranks),
        f"{len(ranks)} ranks go on from what {saved_by} have saved, and reach the same result",
        f"from step {ranks[0].began_at}; the largest difference is {worst:.0e}",
    )
