"""Checks of the paper's claims, on the results of the stages."""

from collections.abc import Mapping, Sequence
from itertools import pairwise

import numpy as np

from examples._shared.checks import check
from examples._shared.data import Array
from examples._shared.logical_time import idle, replay
from examples._shared.problem import Problem
from examples.systems.gpipe import oracle
from examples.systems.gpipe.algorithm import cut
from examples.systems.gpipe.stage import Batch, Run

Trained = Mapping[Run, Sequence[Batch]]
"""For each run, the last batch of each stage."""


def check_cut(costs: Sequence[int], stages: int) -> None:
    """Check that no other cut of the layers is more even."""
    bounds = cut(costs, stages)
    is_best = bounds == oracle.best_of_all_cuts(costs, stages)
    shares = [sum(costs[begin:end]) for begin, end in pairwise(bounds)]
    check(is_best, f"K={stages}: no other cut of the layers is more even", f"stages cost {shares}")


def check_equal(trained: Trained, alone: Array, stages: int) -> None:
    """Check that the parameters are those of one process, however batches and layers are cut."""
    apart = []
    for batches in trained.values():
        parameters = np.concatenate([batch.parameters for batch in batches])
        apart.append(float(abs(parameters - alone).max()))
    claim = f"K={stages}: gradients are those of one process, for all M"
    check(max(apart) <= 1e-12, claim, f"their sums are at most {max(apart):.1e} apart")


def check_bubble(trained: Trained, stages: int) -> None:
    """Check that in logical time stages wait exactly as long as the paper's formula says."""
    waits = {run: idle(replay([batch.trace for batch in trained[run]])) for run in trained}
    is_right = all(waits[run] == oracle.bubble(stages, run.micro_batches) for run in trained)
    claim = f"K={stages}: stages wait for (K-1)/(M+K-1) of logical time"
    check(is_right, claim, ", ".join(f"M={run.micro_batches} {waits[run]}" for run in trained))


def check_kept(trained: Trained, problem: Problem, stages: int) -> None:
    """Check that stages of dense layers keep as many numbers for the way back as they should."""
    rows = len(problem.batch(0))
    bounds = list(pairwise(cut(problem.network.sizes, stages)))
    own_widths = [problem.dense.widths[begin : end + 1] for begin, end in bounds]
    is_right = True
    measured = ""
    of_all = [oracle.kept(widths, rows, rows) for widths in own_widths]
    for run, batches in trained.items():
        peaks = [batch.peak for batch in batches]
        some = rows // run.micro_batches
        is_right &= peaks == [oracle.kept(widths, rows, some) for widths in own_widths]
        measured = f"M={run.micro_batches} {peaks} numbers instead of {of_all}"
    claim = f"K={stages}: a stage keeps all its inputs, but the outputs of only one micro-batch"
    check(is_right, claim, measured)


def check_killed(killed: Sequence[Batch], undisturbed: Sequence[Batch]) -> None:
    """Check that the run in which a stage was killed has the bits of the undisturbed one."""
    pairs = zip(killed, undisturbed, strict=True)
    is_equal = all(a.parameters.tobytes() == b.parameters.tobytes() for a, b in pairs)
    attempts = [batch.attempt for batch in killed]
    measured = f"all stages ended in attempts {attempts}"
    check(is_equal and min(attempts) > 1, "a killed stage changes no bit", measured)
