"""A small network and its data, which the snippets for torch train. Yours would stand here."""

from typing import Any

import numpy as np
import torch
from torch.utils.data import TensorDataset

State = tuple[dict[str, Any], dict[str, Any]]


# part: problem
def batch(step: int, rank: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Return 8 rows and their labels: for a step and a rank always the same ones."""
    x = np.random.default_rng([step, rank]).normal(size=(8, 4)).astype(np.float32)
    return torch.from_numpy(x), torch.from_numpy(x.sum(axis=1, keepdims=True))


def make_model() -> torch.nn.Sequential:
    torch.manual_seed(0)  # the same first weights in all ranks
    return torch.nn.Sequential(torch.nn.Linear(4, 16), torch.nn.Tanh(), torch.nn.Linear(16, 1))


def train_step(
    model: torch.nn.Module, optimizer: torch.optim.Optimizer, step: int, rank: int
) -> None:
    x, y = batch(step, rank)
    optimizer.zero_grad()
    torch.nn.functional.mse_loss(model(x), y).backward()
    optimizer.step()


def state_of(model: torch.nn.Module, optimizer: torch.optim.Optimizer) -> State:
    return model.state_dict(), optimizer.state_dict()


def load_state(model: torch.nn.Module, optimizer: torch.optim.Optimizer, state: State) -> None:
    weights, moments = state
    model.load_state_dict(weights)
    optimizer.load_state_dict(moments)


# end
def rows(n_batches: int) -> TensorDataset:
    """Return the rows of many batches, for code that wants a data set."""
    parts = [batch(step, rank=0) for step in range(n_batches)]
    return TensorDataset(torch.cat([x for x, _ in parts]), torch.cat([y for _, y in parts]))


def weights(model: torch.nn.Module) -> list[float]:
    """Return all weights."""
    whole = [p.full_tensor() if hasattr(p, "full_tensor") else p for p in model.parameters()]
    return torch.cat([value.detach().float().flatten() for value in whole]).tolist()
