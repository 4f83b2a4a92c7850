"""What the paper claims, each looked for in what the stages have returned."""

from collections.abc import Mapping, Sequence

import numpy as np

from examples._shared.checks import check
from examples._shared.digits import Array
from examples.gpipe import oracle
from examples.gpipe.algorithm import costs, cut
from examples.gpipe.logical_time import idle, replay
from examples.gpipe.program import Batch, Run, Training

Trained = Mapping[Run, Sequence[Batch]]
"""What each stage has of the last batch, for each run."""


def check_equal(trained: Trained, alone: tuple[Array, Array], stages: int) -> None:
    """Gradients and parameters are those of one process, however batches and layers are cut."""
    worst = [0.0, 0.0]
    for batches in trained.values():
        for i, expected in enumerate(alone):
            found = np.concatenate([batch[i] for batch in batches])
            worst[i] = max(worst[i], float(abs(found - expected).max()))
    claim = f"{stages} stages have the gradients of one process, for all numbers of micro-batches"
    measured = f"at most {worst[0]:.1e} apart, parameters {worst[1]:.1e}"
    check(max(worst) <= 1e-12, claim, measured)


def check_bubble(trained: Trained, stages: int) -> None:
    """In logical time stages wait as long as the paper's formula says, in fractions."""
    is_right, measured = True, []
    for run, batches in trained.items():
        waited = idle(replay([batch.trace for batch in batches]))
        is_right &= waited == oracle.bubble(stages, run.micro_batches)
        if run.rematerializes:
            clock = sum(batch.waited for batch in batches) / stages
            measured.append(f"{waited} for M = {run.micro_batches} ({clock:.2f} by the clock)")
    claim = f"{stages} stages wait for (K-1)/(M+K-1) of the time"
    check(is_right, claim, ", ".join(measured))


def check_kept(trained: Trained, training: Training, stages: int) -> None:
    """Stages keep as many numbers as they should for the way back."""
    is_right, peaks = True, {}
    for run, batches in trained.items():
        for batch, (begin, end) in zip(batches, training.cut(stages), strict=True):
            widths = training.widths[begin : end + 1]
            is_right &= batch.peak == oracle.kept(widths, training.batch_size, *run[:2])
        peaks[run.rematerializes] = [batch.peak for batch in batches]
    claim = f"{stages} stages that compute again keep their inputs, and one micro-batch's outputs"
    check(is_right, claim, f"for M = 8 {peaks[True]} numbers, and without it {peaks[False]}")


def check_cut(training: Training, stages: int) -> None:
    """No other cut of the layers is more even."""
    of_layers = costs(training.widths)
    is_best = cut(of_layers, stages) == oracle.best_of_all_cuts(of_layers, stages)
    shares = [sum(of_layers[begin:end]) for begin, end in training.cut(stages)]
    check(is_best, f"no other cut into {stages} stages is more even", f"they cost {shares}")


def check_killed(trained: Trained, run: Run, attempts: Sequence[int]) -> None:
    """The run in which a stage was killed has given the bits of the one in which none was."""
    bits = [
        [(batch.gradient.tobytes(), batch.parameters.tobytes()) for batch in trained[each]]
        for each in (run, run._replace(is_disturbed=True))
    ]
    is_right = bits[0] == bits[1] and set(attempts) == {2}
    check(is_right, "a killed stage changes no bit", f"the stages ended in attempts {attempts}")


def check_torch(gradients: Sequence[Array], trained: Trained) -> None:
    """torch's pipeline has the same gradients."""
