"""ZeRO in torch: the training with ZeroRedundancyOptimizer (stage 1) and with FSDP2 (stage 3)."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.optim import ZeroRedundancyOptimizer

import launchpad as lp
from examples._shared.data import Array
from examples._shared.problem import Problem

PRELOAD = ["torch", "torch._dynamo", "torch.distributed.fsdp", "torch.distributed.optim"]


def train(group: lp.Collective, problem: Problem) -> list[Array]:
    """Train twice, in float64: with ZeroRedundancyOptimizer, then with FSDP2. Return the parameters."""
    group.init_torch()
    results = []
    for wrap in (zero_redundancy, fully_sharded):
        network = problem.dense.in_torch(problem.first_parameters)
        model, adam = wrap(network, group.size, problem.learning_rate)
        for step in range(problem.steps):
            batch = problem.batch(step).parts(group.size)[group.rank]
            adam.zero_grad()
            scores = model(torch.from_numpy(batch.inputs))
            torch.nn.functional.cross_entropy(scores, torch.from_numpy(batch.targets)).backward()
            adam.step()
        results.append(parameters_of(network))
    return results


def zero_redundancy(network: Any, ranks: int, rate: float) -> tuple[Any, Any]:
    """Return a model of DDP, and an optimizer that keeps the state of some of its tensors."""
    adam = ZeroRedundancyOptimizer(network.parameters(), torch.optim.Adam, lr=rate)
    return torch.nn.parallel.DistributedDataParallel(network), adam


def fully_sharded(network: Any, ranks: int, rate: float) -> tuple[Any, Any]:
    """Return a model whose tensors are cut along their first axis, and an optimizer for them."""
    mesh = init_device_mesh("cpu", (ranks,))
    for part in (*network[::2], network):
        fully_shard(part, mesh=mesh)
    return network, torch.optim.Adam(network.parameters(), lr=rate)


def parameters_of(network: Any) -> Array:
    """Gather the parameters, in the order of `Dense.matrices`."""
    tensors = [tensor for linear in network[::2] for tensor in (linear.weight.T, linear.bias)]
    whole = [getattr(each, "full_tensor", lambda each=each: each)() for each in tensors]
    return np.concatenate([each.detach().numpy().flatten() for each in whole])


def make_program(problem: Problem, ranks: int) -> lp.Program:
    """Return torch's ranks."""
    program = lp.Program("zero-torch")
    with program.group("rank"):
        for _ in range(ranks):
            program.add_node(lp.CollectiveNode(train, problem))
    return program
