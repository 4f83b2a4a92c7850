"""The truth for the ranks: one process that learns from whole batches, and torch's data parallelism."""

from typing import Any

import numpy as np

import launchpad as lp
from examples._shared import networks
from examples._shared.data import Array
from examples.systems.horovod.program import Training


def train_alone(training: Training) -> Array:
    """Return the parameters after all steps."""
    parameters = training.first_parameters
    velocity = np.zeros_like(parameters)
    for step in range(training.steps):
        gradient = networks.gradient(training.widths, parameters, training.batch(step))
        velocity = training.momentum * velocity + gradient
        parameters = parameters - training.learning_rate * velocity
    return parameters


def train_by_torch(group: lp.Collective, training: Training) -> Array:
    """Train the same network with torch's DistributedDataParallel, as one of its ranks."""
    import torch
    from torch.nn.parallel import DistributedDataParallel

    group.init_torch()
    network = DistributedDataParallel(networks.in_torch(training.widths, training.first_parameters))
    optimizer = torch.optim.SGD(network.parameters(), training.learning_rate, training.momentum)
    for step in range(training.steps):
        part = training.batch(step)[group.rank :: group.size]
        optimizer.zero_grad()
        scores = network(torch.from_numpy(part.inputs))
        loss: Any = torch.nn.functional.cross_entropy(scores, torch.from_numpy(part.targets))
        loss.backward()
        optimizer.step()
    tensors = [tensor.detach().numpy().T for tensor in network.parameters()]
    return np.concatenate([tensor.ravel() for tensor in tensors])
