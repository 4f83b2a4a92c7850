"""Nodes that train with torch.distributed."""

from __future__ import annotations

import os
import signal
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.checkpoint.state_dict import (
    StateDictOptions,
    get_state_dict,
    set_state_dict,
)
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel

import launchpad as lp

Weights = dict[str, Any]
"""numpy's arrays by name."""


class Model(nn.Module):
    """Small, with layers of different sizes."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(16, 32)
        self.second = nn.Linear(32, 4)

    def forward(self, x: Any) -> Any:
        return self.second(torch.relu(self.first(x)))


def batch(step: int, rank: int) -> tuple[Any, Any]:
    """The same for this step and rank whenever it is asked for."""
    random = torch.Generator().manual_seed(1000 * step + rank)
    return torch.randn(8, 16, generator=random), torch.randn(8, 4, generator=random)


def weights_of(model: nn.Module) -> Weights:
    return {name: value.detach().clone().numpy() for name, value in model.state_dict().items()}


def train(
    group: lp.Collective,
    steps: int,
    *,
    is_sharded: bool,
    deaths: tuple[tuple[int, int], ...] = (),
) -> Weights:
    """Trains with DDP or FSDP2, and goes on where it was. `deaths`: step and rank of each generation."""
    group.init_torch()
    model, optimizer = build(group, is_sharded)
    me, options = lp.current(), StateDictOptions(full_state_dict=True, cpu_offload=True)
    state = group.broadcast_object(me.load() if group.rank == 0 else None)
    begins_at = 0
    if state is not None:
        begins_at, weights, momenta = state
        set_state_dict(
            model,
            optimizer,
            model_state_dict=weights,
            optim_state_dict=momenta,
            options=options,
        )
    dies = deaths[group.generation - 1] if group.generation <= len(deaths) else None
    for step in range(begins_at, steps):
        x, y = batch(step, group.rank)
        optimizer.zero_grad()
        loss = nn.functional.mse_loss(model(x), y)
        if dies == (step, group.rank):
            os.kill(os.getpid(), signal.SIGKILL)  # the others wait for its gradients
        loss.backward()
        optimizer.step()
        states = get_state_dict(model, optimizer, options=options)  # whole, and in rank 0 only
        if group.rank == 0:
            me.save((step + 1, *states))
    return {
        name: value.numpy()
        for name, value in get_state_dict(model, optimizer, options=options)[0].items()
    }


def build(group: lp.Collective, is_sharded: bool) -> tuple[Any, Any]:
    torch.manual_seed(0)
    model: Any = Model()
    if is_sharded:
        mesh = init_device_mesh("cpu", (group.size,))
        for layer in [*model.children(), model]:
            fully_shard(layer, mesh=mesh)
    else:
        model = DistributedDataParallel(model)
    return model, torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)


def main(steps: int) -> Weights:
    """A script for torchrun, as it is: variables, `env://`, DDP."""
    dist.init_process_group("gloo")
    rank, size = dist.get_rank(), dist.get_world_size()
    assert (rank, size) == (int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"]))
    torch.manual_seed(rank)
    model = DistributedDataParallel(Model())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for step in range(steps):
        x, y = batch(step, rank)
        optimizer.zero_grad()
        nn.functional.mse_loss(model(x), y).backward()
        optimizer.step()
    dist.barrier()
    dist.destroy_process_group()
    return weights_of(model.module)


def main_twice(group: lp.Collective, steps: int) -> tuple[Weights, Weights, dict[str, str]]:
    """A script that is run twice in one generation."""
    group.init_torch(default_group=False)
    variables = {
        name: value
        for name, value in os.environ.items()
        if name in ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "MASTER_ADDR")
    }
    return main(steps), main(steps), variables


def train_alone(steps: int, size: int) -> Weights:
    """What `size` ranks compute together, in one process: the mean of their gradients."""
    torch.manual_seed(0)
    model = Model()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    for step in range(steps):
        optimizer.zero_grad()
        for rank in range(size):
            x, y = batch(step, rank)
            (nn.functional.mse_loss(model(x), y) / size).backward()
        optimizer.step()
    return weights_of(model)
