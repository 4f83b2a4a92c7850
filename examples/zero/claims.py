"""What the paper claims, checked."""

import difflib
import inspect
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from examples._shared.checks import check
from examples._shared.digits import Array
from examples.zero.program import Measured

KEPT = {0: "Ψ Ψ 2Ψ", 1: "Ψ Ψ 2Ψ/N", 2: "Ψ Ψ/N 2Ψ/N", 3: "Ψ/N Ψ/N 2Ψ/N"}
"""By stage: parameters, gradients, Adam's state."""

TOLERANCE = 1e-12


def check_weights(claim: str, ranks: Sequence[Array], wanted: Array) -> None:
    """All ranks have come to these parameters."""
    worst = max(float(np.abs(rank - wanted).max()) for rank in ranks)
    check(worst <= TOLERANCE, claim, f"differ by {worst:.0e} at most")


def check_kept(stage: int, ranks: Sequence[Measured], layers: Sequence[int]) -> None:
    """Each rank keeps what the table says, and of the rest one layer at a time."""
    n = len(ranks)
    size = sum(-(-layer // n) * n for layer in layers)
    units = {"Ψ": size, "2Ψ": 2 * size, "Ψ/N": size // n, "2Ψ/N": 2 * size // n}
    kept = [units[unit] for unit in KEPT[stage].split()]
    wanted = Measured(
        dict(zip(("parameters", "gradients", "moments"), kept, strict=True)),
        gathered=max(layers) if stage == 3 else 0,
        to_scatter=max(layers) if stage >= 2 else 0,
    )
    measured = ", ".join(f"{count:,} {what}" for what, count in ranks[0].kept.items())
    one, other = ranks[0].gathered, ranks[0].to_scatter
    check(
        all(rank == wanted for rank in ranks),
        f"each of {n} ranks at stage {stage} keeps {KEPT[stage]}, and the largest layer in passing",
        f"{measured}; in passing {one:,} parameters and {other:,} gradients",
    )


def check_traffic(sent: Mapping[int, float]) -> None:
    """Stages send as much as data parallelism does, but the last: 1.5 times that."""
    measured = ", ".join(f"{amount:.4f} Ψ" for amount in sent.values())
    relative = np.array([sent[stage] / sent[0] for stage in range(4)])
    check(
        bool(np.abs(relative - [1, 1, 1, 1.5]).max() < 0.01),
        "the traffic of stages 0, 1, 2, 3 is as 1 : 1 : 1 : 1.5",
        f"each rank has sent {measured} per step",
    )


def check_few_lines_differ(
    alone: Callable[..., object], sharded: Callable[..., object], at_most: int = 5
) -> None:
    """The user's function differs between one process and ZeRO in few lines, which are printed."""
    sources = [inspect.getsource(function).splitlines() for function in (alone, sharded)]
    lines = [line for line in difflib.ndiff(*sources) if line[0] in "-+"]
    print("\n".join(lines))
    changed = sum(line[0] == "+" for line in lines)
    check(
        changed <= at_most,
        f"the training of one process becomes ZeRO's with {at_most} lines changed or new",
        f"{changed}",
    )
