"""What the pipeline must arrive at: one process with whole batches, the paper's formulas, torch's pipeline."""

from collections.abc import Sequence
from fractions import Fraction
from itertools import combinations, pairwise

import numpy as np

import launchpad as lp
from examples._shared import networks
from examples._shared.digits import Array
from examples.gpipe.program import Training


def train_alone(training: Training) -> tuple[Array, Array]:
    """Return the gradient of the last batch, and the parameters after it."""
    parameters = networks.first_parameters(training.widths)
    for step in range(training.steps):
        gradient = networks.gradient(training.widths, parameters, training.batch(step))
        parameters = parameters - training.learning_rate * gradient
    return gradient, parameters


def best_of_all_cuts(costs: Sequence[int], stages: int) -> tuple[int, ...]:
    """Return the most even cut, found by trying all."""

    def squares(bounds: tuple[int, ...]) -> int:
        return sum(sum(costs[begin:end]) ** 2 for begin, end in pairwise(bounds))

    inner = combinations(range(1, len(costs)), stages - 1)
    return min(((0, *bounds, len(costs)) for bounds in inner), key=squares)


def bubble(stages: int, micro_batches: int) -> Fraction:
    """Return the share of time in which a stage waits."""
    return Fraction(stages - 1, micro_batches + stages - 1)


def kept(widths: Sequence[int], images: int, micro_batches: int, rematerializes: bool) -> int:
    """Return how many numbers a stage keeps: its inputs, and its outputs of all or of one micro-batch."""
    inputs, *outputs = widths
    return images * inputs + images // (micro_batches if rematerializes else 1) * sum(outputs)


def torch_gradient(group: lp.Collective, training: Training, micro_batches: int) -> Array:
    """Return a stage's gradient of the first batch by torch's pipeline."""
    import torch
    from torch.distributed.pipelining import PipelineStage, ScheduleGPipe

    group.init_torch()
    begin, end = training.cut(group.size)[group.rank]
    parameters = networks.first_parameters(training.widths)
    module = networks.in_torch(training.widths, parameters)[2 * begin : 2 * end]
    stage = PipelineStage(module, group.rank, group.size, torch.device("cpu"))
    loss = torch.nn.functional.cross_entropy
    pipeline = ScheduleGPipe(stage, micro_batches, loss_fn=loss)
    batch, is_last = training.batch(0), group.rank == group.size - 1
    images = [torch.from_numpy(batch.images)] if group.rank == 0 else []
    pipeline.step(*images, target=torch.from_numpy(batch.labels) if is_last else None)
    gradients = [p.grad.numpy().T for p in module.parameters() if p.grad is not None]
    return np.concatenate([gradient.ravel() for gradient in gradients])
