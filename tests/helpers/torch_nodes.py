"""Nodes that train with torch.distributed."""

from __future__ import annotations

import functools
import os
import signal
from typing import Any

import numpy as np
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
from launchpad.collectives import gloo_sockets
from launchpad.collectives.torch_store import CourierStore

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
    """Return a batch. The same step and rank always get the same one."""
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
    me = lp.current()
    options = StateDictOptions(full_state_dict=True, cpu_offload=True)
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
    rank = dist.get_rank()
    size = dist.get_world_size()
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


def main_twice(group: lp.Collective, steps: int) -> tuple[Weights, Weights]:
    """A script that is run twice in one generation."""
    group.init_torch(default_group=False)
    return main(steps), main(steps)


def train_alone(steps: int, size: int) -> Weights:
    """Train in one process as `size` ranks do together, by the mean of their gradients."""
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


KINDS = "i1 u1 i2 u2 i4 u4 i8 u8 f2 f4 f8 c8 c16".split()
UFUNCS = {"sum": np.add, "prod": np.multiply, "max": np.maximum, "min": np.minimum}


def given(kind: str, size: int, rank: int) -> Any:
    """What a rank puts in: small numbers, so that products are exact; for unsigned ones large, too."""
    values = np.random.default_rng(rank).integers(1, 4, size).astype(kind)
    if kind[0] == "u":
        values[rank % max(size, 1) :: 3] += np.iinfo(kind).max // 2
    return values


def compute_all(group: lp.Collective) -> list[str]:
    """Call every operation with every type. Return those whose results differ from numpy's."""
    differs = []
    rank = group.rank
    ranks = range(group.size)
    with np.errstate(over="ignore"):
        for kind in KINDS:
            for size in (0, 1, 1000):
                values = [given(kind, size, r) for r in ranks]
                for op, ufunc in UFUNCS.items():
                    if kind[0] == "c" and op in ("max", "min"):
                        continue
                    if not (
                        group.all_reduce(values[rank], op) == functools.reduce(ufunc, values)
                    ).all():
                        differs.append(f"all_reduce {op} {kind} {size}")
                gathered = group.all_gather(values[rank])
                if not all(np.array_equal(a, b) for a, b in zip(gathered, values, strict=True)):
                    differs.append(f"all_gather {kind} {size}")
                if not np.array_equal(group.broadcast(values[rank], root=1), values[1]):
                    differs.append(f"broadcast {kind} {size}")
            parts = [np.full((r + 1, rank + 1), 10 * rank + r).astype(kind) for r in ranks]
            expected = [np.full((rank + 1, r + 1), 10 * r + rank).astype(kind) for r in ranks]
            if not all(map(np.array_equal, group.all_to_all(parts), expected)):
                differs.append(f"all_to_all {kind}")
    trees = [{"x": np.full(r, rank), "tensor": torch.full((r, 2), rank)} for r in ranks]
    for r, tree in enumerate(group.all_to_all(trees)):
        if tree["x"].tolist() != [r] * rank or tree["tensor"].tolist() != [[r, r]] * rank:
            differs.append("all_to_all of trees")
    rows = np.arange(7.0).reshape(7, 1) * (rank + 1)
    total = sum(np.arange(7.0).reshape(7, 1) * (r + 1) for r in ranks)
    if not np.array_equal(group.reduce_scatter(rows), np.array_split(total, group.size)[rank]):
        differs.append("reduce_scatter")
    tensor = torch.ones(3, dtype=torch.bfloat16) * (rank + 1)
    group.all_reduce(tensor, op="mean")
    if tensor.tolist() != [(group.size + 1) / 2] * 3:
        differs.append("all_reduce of a tensor")
    objects = group.all_gather_object("x" * rank), group.broadcast_object({"rank": rank}, root=2)
    if objects != (["x" * r for r in ranks], {"rank": 2}):
        differs.append("objects")
    if group.gather_object(rank, root=1) != ([*ranks] if rank == 1 else None):
        differs.append("gather_object")
    half = group.split(rank % 2)
    assert half is not None
    if half.all_reduce(rank) != sum(r for r in ranks if r % 2 == rank % 2):
        differs.append("split")
    group.barrier("done")
    return differs


def wait_for_each_other(group: lp.Collective, is_killed: bool) -> None:
    """Rank 0 dies while the others wait in gloo, each for the other."""
    lp.stop_event()  # which says that this function ends by itself: it is not interrupted
    group.barrier()
    if group.rank == 0:
        if is_killed:
            os.kill(os.getpid(), signal.SIGKILL)
        raise ValueError("told to fail")
    group.broadcast(np.ones(4), root=3 - group.rank)


def wait_in_the_default_group(group: lp.Collective) -> None:
    """Wait in torch's default group, whose error escapes from this function."""
    lp.stop_event()
    group.init_torch()
    dist.barrier()
    if group.rank == 0:
        os.kill(os.getpid(), signal.SIGKILL)
    dist.recv(torch.zeros(1), src=3 - group.rank)


def be_stuck_once(group: lp.Collective, backend: str) -> list[Any]:
    """In the first generation nothing is freed: gloo's connections stay when rank 0 dies."""
    if group.generation == 1:
        gloo_sockets.shut = lambda published, size: None
        if backend == "gloo":
            wait_for_each_other(group, is_killed=True)
        wait_in_the_default_group(group)
    return [group.generation, lp.current().attempt, group.size]


def init_on_a_thread(group: lp.Collective) -> None:
    group.init_torch()


def train_on(group: lp.Collective) -> list[Any]:
    """Elastic: goes on with fewer, and again with all, in the same process; the last rank dies once.

    No rank sends by gloo when a generation ends: gloo may not free one whose send fails.
    """
    group.init_torch()
    me = lp.current()
    total = torch.ones(1)
    if group.size == me.num_replicas:
        dist.all_reduce(total)
    group.barrier()
    if me.attempt == 1 and me.replica_index == me.num_replicas - 1:
        os.kill(os.getpid(), signal.SIGKILL)
    while group.generation == 1 or group.size < me.num_replicas:
        group.barrier()
    return [me.attempt, dist.get_world_size() == group.size == int(total)]


def train_on_after_one_died_connecting(group: lp.Collective) -> list[Any]:
    """Train on after a rank died whose address the others knew, while they waited for it to connect."""
    me = lp.current()
    if me.attempt == 1 and me.replica_index == me.num_replicas - 1:
        die_connecting()
    return train_on(group)


def go_on_after_one_died_connecting(group: lp.Collective) -> list[int]:
    """Elastic, with a group of gloo's own: rank 1 dies, then the last one while gloo connects them anew."""
    me = lp.current()
    if me.attempt == 1 and me.replica_index == me.num_replicas - 1:
        die_connecting()
    while group.generation == 1 or group.size < me.num_replicas:
        if me.attempt == 1 and me.replica_index == 1:
            os.kill(os.getpid(), signal.SIGKILL)
        group.broadcast(np.ones(1), root=(group.rank + 1) % group.size)  # none sends
    return [me.attempt, int(group.all_reduce(1))]


def die_connecting() -> None:
    """Has this process die when gloo asks for the address of rank 1: it has given its own one before."""
    get = CourierStore.get

    def get_and_die(store: CourierStore, key: str) -> bytes:
        value = get(store, key)
        if key.endswith("/1"):
            os.kill(os.getpid(), signal.SIGKILL)
        return value

    CourierStore.get = get_and_die  # type: ignore[method-assign]


def compute_with_jax(group: lp.Collective) -> list[Any]:
    group.init_jax()
    import jax
    from jax.experimental import multihost_utils

    gathered = multihost_utils.process_allgather(np.array([group.rank + 1.0]))
    if group.generation == 1 and group.rank == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    gathered = multihost_utils.process_allgather(np.array([group.rank + 1.0]))
    return [group.generation, jax.process_count(), np.asarray(gathered).ravel().tolist()]


def fail_once(group: lp.Collective) -> int:
    """In the first generation one rank fails while the others wait in gloo."""
    group.barrier()
    if group.generation == 1 and group.rank == 0:
        raise ValueError("told to fail")
    return int(group.all_reduce(1)) * group.generation


def meet_everywhere(group: lp.Collective) -> list[Any]:
    """By operations of gloo, and in torch's default group."""
    group.init_torch()
    total = torch.ones(1)
    dist.all_reduce(total)
    names = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "GLOO_SOCKET_IFNAME")
    return [group.all_reduce(group.rank), total.item(), {name: os.environ[name] for name in names}]
