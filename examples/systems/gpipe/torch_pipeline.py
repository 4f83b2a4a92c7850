"""torch's own GPipe, on the same layers. Its stages are the ranks of a collective group."""

from collections.abc import Iterable
from typing import Any

import numpy as np

import launchpad as lp
from examples._shared import networks
from examples._shared.data import Array
from examples.systems.gpipe.oracle import Trained
from examples.systems.gpipe.training import Training

PRELOAD = ["torch", "torch._dynamo", "torch.distributed.pipelining"]


def train_by_torch(group: lp.Collective, training: Training, micro_batches: int) -> Trained:
    """Train with torch's pipeline, as one of its stages."""
    import torch
    from torch.distributed.pipelining import PipelineStage, ScheduleGPipe

    group.init_torch()
    begin, end = training.cut(group.size)[group.rank]
    parameters = networks.first_parameters(training.widths)
    layers = networks.in_torch(training.widths, parameters)[2 * begin : 2 * end]
    optimizer = torch.optim.SGD(layers.parameters(), training.learning_rate)
    stage = PipelineStage(layers, group.rank, group.size, torch.device("cpu"))
    pipeline = ScheduleGPipe(stage, micro_batches, loss_fn=torch.nn.functional.cross_entropy)
    for step in range(training.steps):
        batch = training.batch(step)
        images = [torch.from_numpy(batch.inputs)] if stage.is_first else []
        labels = torch.from_numpy(batch.targets) if stage.is_last else None
        optimizer.zero_grad()
        pipeline.step(*images, target=labels)
        optimizer.step()
    gradients = flat(parameter.grad for parameter in layers.parameters())
    return Trained(gradients, flat(parameter.detach() for parameter in layers.parameters()))


def flat(tensors: Iterable[Any]) -> Array:
    """Return the weights and biases of all layers in the order of `_shared.networks`."""
    return np.concatenate([tensor.numpy().T.ravel() for tensor in tensors])


def make_program(training: Training, micro_batches: int, stages: int) -> lp.Program:
    """Return the same chain as ranks of torch.distributed, whose pipeline sends among them."""
    program = lp.Program("gpipe-torch")
    with program.group("stage"):
        for _ in range(stages):
            program.add_node(lp.CollectiveNode(train_by_torch, training, micro_batches))
    return program
