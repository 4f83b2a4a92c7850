"""Checks of the paper's claims."""

from collections.abc import Sequence

import numpy as np

from examples._shared.checks import check
from examples._shared.data import Array
from examples.systems.zero.rank import Trained

KEPT = ("2Ψ 2Ψ 12Ψ", "2Ψ 2Ψ 12Ψ/N", "2Ψ 2Ψ/N 12Ψ/N", "2Ψ/N 2Ψ/N 12Ψ/N")
"""By stage: the bytes of parameters, gradients, Adam's state."""


def check_parameters(claim: str, ranks: Sequence[Trained], expected: Array) -> None:
    """Check that all ranks have the expected parameters."""
    differ = max(int((rank.parameters != expected).sum()) for rank in ranks)
    measured = f"{differ} of {len(expected):,} parameters differ"
    check(differ == 0, claim, measured)


def check_memory(stage: int, ranks: Sequence[Trained], layers: Sequence[int]) -> None:
    """Check that each rank keeps what the table says, and has one layer at a time for arithmetic."""
    n = len(ranks)
    size = sum(layer + -layer % n for layer in layers)  # with the zeros that are added
    units = {"2Ψ": 2 * size, "12Ψ": 12 * size, "2Ψ/N": 2 * size // n, "12Ψ/N": 12 * size // n}
    parameters, gradients, state = KEPT[stage].split()
    sizes = tuple(units[each] for each in (parameters, gradients, state))
    check(
        all(rank.kept == sizes and rank.wide <= max(layers) for rank in ranks),
        f"each of {n} ranks at stage {stage} keeps {parameters} bytes of parameters, {gradients} of"
        f" gradients and {state} of Adam's state, and one layer at a time for arithmetic",
        "{:,}, {:,}, {:,}; {:,} numbers".format(*ranks[0].kept, ranks[0].wide),
    )


def check_traffic(shares: Array, ranks: int, n: int) -> None:
    """Check the traffic of the stages, in units of 2Ψ bytes per rank and step, with n micro-batches."""
    truth = [2, 2, n + 1, 3 * n]
    of_n = f"N = {ranks} and micro-batches: {n}"
    check(
        bool(np.allclose(shares * ranks / (ranks - 1), truth, rtol=0.03)),
        f"stages 0, 1, 2, 3 send {', '.join(map(str, truth))} times 2Ψ(N-1)/N bytes, for {of_n}",
        "a rank has sent " + ", ".join(f"{share:.3f}" for share in shares) + " times 2Ψ in a step",
    )


def check_kill(ranks: Sequence[Trained], undisturbed: Array) -> None:
    """Check that the second generation went on from a checkpoint, to the same bits."""
    began_at = ranks[0].began_at
    check(
        all((rank.generation, rank.began_at) == (2, began_at) for rank in ranks)
        and began_at > 0
        and all(rank.parameters.tobytes() == undisturbed.tobytes() for rank in ranks),
        "a rank that is killed changes no bit",
        f"generation {ranks[0].generation} has gone on from step {began_at}",
    )
