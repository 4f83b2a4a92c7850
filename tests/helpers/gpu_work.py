"""Work on a GPU, or on the CPU that stands in for one: functions and classes of nodes."""

from __future__ import annotations

import hashlib
import os
from typing import Any, NamedTuple

import torch
from torch import nn

import launchpad as lp

CUDA_WAS_INITIALIZED = torch.cuda.is_initialized()
"""True if this process had a context of CUDA when it imported this module."""


class Seen(NamedTuple):
    """The GPUs that a worker sees."""

    gpus: tuple[str, ...]
    visible: str
    count: int
    had_context: bool
    product: float


def compute(device: str) -> Seen:
    """Multiply two matrices on the device, and return what this worker sees."""
    matrix = torch.full((256, 256), 2.0, device=device)
    product = (matrix @ matrix).mean().item()
    return Seen(
        lp.current().gpus,
        os.environ["CUDA_VISIBLE_DEVICES"],
        torch.cuda.device_count(),
        CUDA_WAS_INITIALIZED,
        product,
    )


def see() -> tuple[tuple[str, ...], str]:
    """Return this worker's GPUs, and CUDA_VISIBLE_DEVICES."""
    return lp.current().gpus, os.environ["CUDA_VISIBLE_DEVICES"]


def reduce(group: lp.Collective, device: str) -> float:
    """Sum a tensor on the device over all ranks."""
    tensor = torch.full((1000,), float(group.rank + 1), device=device)
    group.all_reduce(tensor, op="sum")
    return tensor.mean().item()


def train_ddp(group: lp.Collective, device: str, backend: str, steps: int) -> str:
    """Train with DistributedDataParallel. Return a digest of the weights."""
    from torch.nn.parallel import DistributedDataParallel

    group.init_torch(backend)
    torch.manual_seed(group.rank)  # DDP sends rank 0's weights to all
    return _train(DistributedDataParallel(nn.Linear(16, 4).to(device)), group, device, steps)


def train_fsdp(group: lp.Collective, device: str, backend: str, steps: int) -> str:
    """Train with FSDP2. Return a digest of the weights of all ranks together."""
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    group.init_torch(backend)
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 4)).to(device)
    mesh = init_device_mesh(device, (group.size,))
    fully_shard(model, mesh=mesh)
    return _train(model, group, device, steps)


def _train(model: nn.Module, group: lp.Collective, device: str, steps: int) -> str:
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    for step in range(steps):
        random = torch.Generator().manual_seed(1000 * step + group.rank)
        inputs = torch.randn(8, 16, generator=random).to(device)
        optimizer.zero_grad()
        model(inputs).square().mean().backward()
        optimizer.step()
    digest = hashlib.sha256()
    for parameter in model.parameters():
        whole: Any = parameter.full_tensor() if hasattr(parameter, "full_tensor") else parameter
        digest.update(whole.detach().cpu().numpy().tobytes())
    return digest.hexdigest()


def use_jax() -> tuple[str, float]:
    """Return the platform of jax's default device, and a sum that it has computed."""
    import jax

    values = jax.numpy.arange(1000.0)
    return values.devices().pop().platform, float(values.sum())


class Echo:
    """A server with a GPU that takes arrays and returns them doubled."""

    def double(self, array: Any) -> tuple[str, Any]:
        """Return the device on which the array arrived, and its double."""
        return _device_of(array), array * 2


def send(echo: Any, kind: str, device: str) -> tuple[str, str, float]:
    """Send an array of the device. Return where it arrived, where its double did, and the sum of that."""
    array: Any
    if kind == "jax":
        import jax

        array = jax.numpy.arange(1000.0)
    else:
        array = torch.arange(1000.0, device=device)
    arrived, doubled = echo.double(array)
    return arrived, _device_of(doubled), float(doubled.sum())


def _device_of(array: Any) -> str:
    if isinstance(array, torch.Tensor):
        return array.device.type
    return "cuda" if array.devices().pop().platform == "gpu" else "cpu"


class Holder:
    """A server that holds memory of its device."""

    def __init__(self, device: str) -> None:
        self._device = device
        self._held: list[Any] = []

    def hold(self, n_bytes: int) -> int:
        """Hold this much memory. Return how much torch says that this process has."""
        self._held.append(torch.ones(n_bytes, dtype=torch.uint8, device=self._device))
        return torch.cuda.memory_allocated() if self._device == "cuda" else n_bytes
