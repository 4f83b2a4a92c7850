"""torch's own GPipe on the layers of the example. Its stages are the ranks of a collective group."""

from __future__ import annotations

import numpy as np
import torch
from torch.distributed.pipelining import PipelineStage, ScheduleGPipe

import launchpad as lp
from examples._shared.data import Array
from examples._shared.problem import Problem
from examples.systems.gpipe.algorithm import cut

PRELOAD = ["torch", "torch._dynamo", "torch.distributed.pipelining"]


def train(group: lp.Collective, problem: Problem, micro_batches: int) -> Array:
    """Train with torch's pipeline, as one of its stages. Return the parameters of the stage."""
    group.init_torch()
    begin, end = cut(problem.network.sizes, group.size)[group.rank :][:2]
    layers = problem.dense.in_torch(problem.first_parameters)[2 * begin : 2 * end]
    optimizer = torch.optim.SGD(layers.parameters(), problem.learning_rate)
    stage = PipelineStage(layers, group.rank, group.size, torch.device("cpu"))
    pipeline = ScheduleGPipe(stage, micro_batches, loss_fn=torch.nn.functional.cross_entropy)
    for step in range(problem.steps):
        batch = problem.batch(step)
        inputs = [torch.from_numpy(batch.inputs)] if stage.is_first else []
        targets = torch.from_numpy(batch.targets) if stage.is_last else None
        optimizer.zero_grad()
        pipeline.step(*inputs, target=targets)
        optimizer.step()
    # Weights and biases of all layers, in the order of `_shared.networks`.
    tensors = [parameter.detach() for parameter in layers.parameters()]
    return np.concatenate([tensor.numpy().T.ravel() for tensor in tensors])


def make_program(problem: Problem, micro_batches: int, stages: int) -> lp.Program:
    """Return the chain as ranks of torch.distributed, whose pipeline sends among them."""
    program = lp.Program("gpipe-torch")
    with program.group("stage"):
        for _ in range(stages):
            program.add_node(lp.CollectiveNode(train, problem, micro_batches))
    return program
