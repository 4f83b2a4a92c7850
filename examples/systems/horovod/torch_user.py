"""A user's loop in torch, alone and with Horovod's four steps, and torch's own data parallelism."""

from functools import partial
from typing import Any

import numpy as np
import torch
from torch.nn.functional import cross_entropy
from torch.nn.parallel import DistributedDataParallel

import launchpad as lp
from examples._shared.checks import check_few_lines_differ, phase
from examples._shared.data import Array, Data
from examples._shared.problem import Problem
from examples.systems.horovod.algorithm import Buckets
from examples.systems.horovod.claims import check_near
from examples.systems.horovod.program import make_program
from examples.systems.horovod.rank import Options

MOST_LINES = 16


class DistributedOptimizer:
    """A wrapper of a torch optimizer, whose steps then follow the mean gradient of all ranks."""

    def __init__(self, optimizer: torch.optim.Optimizer, group: lp.Collective) -> None:
        self._optimizer = optimizer
        self._buckets = Buckets(partial(group.all_reduce, op="mean"))
        for parameters in optimizer.param_groups:
            for tensor in parameters["params"]:
                # An array of numpy shares the memory of the gradient.
                hook = lambda each: self._buckets.ready(each.grad.numpy())  # noqa: E731
                tensor.register_post_accumulate_grad_hook(hook)

    def step(self) -> None:
        self._buckets.wait()
        self._optimizer.step()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._optimizer, name)


def train_alone(problem: Problem, model: torch.nn.Module) -> torch.nn.Module:
    """Train in one process."""
    optimizer: Any = torch.optim.SGD(model.parameters(), problem.learning_rate, momentum=0.9)
    for step in range(problem.steps):
        loss = loss_of(model, problem.batch(step))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return model


def train_as_rank(
    group: lp.Collective, problem: Problem, _: Options, kill_at: int, model: torch.nn.Module
) -> torch.nn.Module:
    """Train as one of the ranks, with the four steps of Horovod. Rank 1 dies once."""
    me = lp.current()
    optimizer: Any = torch.optim.SGD(model.parameters(), problem.learning_rate, momentum=0.9)
    optimizer = DistributedOptimizer(optimizer, group)
    state = me.load(default=(0, model.state_dict(), optimizer.state_dict()))
    begin, of_model, of_optimizer = group.broadcast_object(state)
    model.load_state_dict(of_model)
    optimizer.load_state_dict(of_optimizer)
    for step in range(begin, problem.steps):
        if step == kill_at and group.rank == 1 and me.attempt == 1:
            lp.testing.crash()
        loss = loss_of(model, problem.slice(step, group.rank))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if group.rank == 0:
            me.save((step + 1, model.state_dict(), optimizer.state_dict()), keep=1)
    return model


def train_by_ddp(
    group: lp.Collective, problem: Problem, _: Options, __: None, model: torch.nn.Module
) -> torch.nn.Module:
    """Train as one of the ranks of torch's own data parallelism."""
    group.init_torch()
    network = DistributedDataParallel(model)
    optimizer = torch.optim.SGD(network.parameters(), problem.learning_rate, momentum=0.9)
    for step in range(problem.steps):
        optimizer.zero_grad()
        loss_of(network, problem.slice(step, group.rank)).backward()
        optimizer.step()
    return model


def loss_of(model: torch.nn.Module, data: Data) -> torch.Tensor:
    """Return the mean loss."""
    outputs = model(torch.from_numpy(data.inputs))
    return cross_entropy(outputs, torch.from_numpy(data.targets))


def check_loops(problem: Problem, by_numpy: Array) -> None:
    """Train the same network by torch: alone, as ranks of which one is killed, and by torch's own ranks."""
    phase("a model of torch, in a user's loop; rank 1 is killed half-way")
    model = problem.dense.in_torch(problem.first_parameters)
    learned = []
    for function, kill_at in ((train_as_rank, problem.steps // 2), (train_by_ddp, None)):
        program = make_program(problem, None, kill_at, partial(function, model=model))
        learned.append(flat(lp.run(program, preload=["torch", "torch._dynamo"])["rank"][0]))
    alone = flat(train_alone(problem, model))
    ranks = f"{problem.workers} ranks learn what"
    check_near(learned[0], alone, 1e-10, f"{ranks} the user's loop learns alone")
    check_near(by_numpy, learned[1], 1e-6, f"{ranks} torch's DistributedDataParallel learns")
    claim = "the user's loop becomes that of a rank"
    check_few_lines_differ(claim, MOST_LINES, train_alone, train_as_rank)


def flat(model: torch.nn.Module) -> Array:
    """Return the parameters in the order of the network by hand."""
    return np.concatenate([tensor.detach().numpy().T.ravel() for tensor in model.parameters()])
