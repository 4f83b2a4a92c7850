"""Checks of the paper's claims, on the results of the stages."""

from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from examples._shared.checks import check
from examples._shared.data import Array
from examples._shared.logical_time import idle, replay
from examples.systems.gpipe import oracle
from examples.systems.gpipe.algorithm import costs, cut
from examples.systems.gpipe.stage import Batch
from examples.systems.gpipe.training import Run, Training

Trained = Mapping[Run, Sequence[Batch]]
"""For each run, the last batch of each stage."""


def check_cut(training: Training, stages: int) -> None:
    """Check that no other cut of the layers is more even."""
    of_layers = costs(training.widths)
    is_best = cut(of_layers, stages) == oracle.best_of_all_cuts(of_layers, stages)
    shares = [sum(of_layers[begin:end]) for begin, end in training.cut(stages)]
    check(is_best, f"K={stages}: no other cut of the layers is more even", f"stages cost {shares}")


def check_equal(trained: Trained, alone: oracle.Trained, stages: int) -> None:
    """Check that gradients and parameters are those of one process, however batches and layers are cut."""
    runs = trained.values()
    of_gradients = farthest(([batch.gradient for batch in run] for run in runs), alone.gradient)
    of_parameters = farthest(
        ([batch.parameters for batch in run] for run in runs), alone.parameters
    )
    claim = f"K={stages}: gradients are those of one process, for all M"
    measured = f"at most {of_gradients:.1e} apart, and parameters {of_parameters:.1e}"
    check(max(of_gradients, of_parameters) <= 1e-12, claim, measured)


def farthest(runs: Iterable[Sequence[Array]], alone: Array) -> float:
    """Return the largest difference between the stages' arrays, put together, and one process's."""
    return max(float(abs(np.concatenate(stages) - alone).max()) for stages in runs)


def check_bubble(trained: Trained, stages: int) -> None:
    """Check that in logical time stages wait exactly as long as the paper's formula says."""
    is_right = True
    measured = []
    for run, batches in trained.items():
        waited = idle(replay([batch.trace for batch in batches]))
        is_right &= waited == oracle.bubble(stages, run.micro_batches)
        if run.rematerializes and not run.is_disturbed:
            by_clock = sum(batch.waited for batch in batches) / stages
            measured.append(f"M={run.micro_batches} {waited} ({by_clock:.2f} by the clock)")
    claim = f"K={stages}: stages wait for (K-1)/(M+K-1) of logical time"
    check(is_right, claim, ", ".join(measured))


def check_kept(trained: Trained, training: Training, stages: int) -> None:
    """Check that stages keep as many numbers for the way back as they should."""
    is_right = True
    peaks = {}
    for run, batches in trained.items():
        for batch, (begin, end) in zip(batches, training.cut(stages), strict=True):
            widths = training.widths[begin : end + 1]
            is_right &= batch.peak == oracle.kept(widths, training.batch_size, *run[:2])
        peaks[run.rematerializes] = [batch.peak for batch in batches]
    claim = (
        f"K={stages}: if outputs are computed again on the way back, a stage keeps all its inputs, but the"
        " outputs of only one micro-batch"
    )
    check(is_right, claim, f"M=8 {peaks[True]} numbers instead of {peaks[False]}")


def check_killed(trained: Trained, run: Run, attempts: Sequence[int]) -> None:
    """Check that the run in which a stage was killed has the bits of the undisturbed one."""
    bits = [
        [(batch.gradient.tobytes(), batch.parameters.tobytes()) for batch in trained[each]]
        for each in (run, run._replace(is_disturbed=True))
    ]
    is_right = bits[0] == bits[1] and min(attempts) > 1
    check(is_right, "a killed stage changes no bit", f"all stages ended in attempts {attempts}")


def check_torch(by_torch: Sequence[oracle.Trained], alone: oracle.Trained) -> None:
    """Check that the pipeline of torch arrives at the same gradients."""
    apart = farthest([[stage.gradient for stage in by_torch]], alone.gradient)
    check(apart <= 1e-6, "torch's ScheduleGPipe has these gradients, too", f"{apart:.1e} apart")
