"""ZeRO in torch: the training with ZeroRedundancyOptimizer (stage 1) and with FSDP2 (stage 3)."""

from typing import Any, NamedTuple

import numpy as np

import launchpad as lp
from examples._shared import networks
from examples._shared.checks import check
from examples._shared.data import Array, Data
from examples.systems.zero.adam import DECAY, DECAY_OF_SQUARE, EPSILON, RATE
from examples.systems.zero.model import BATCH, WIDTHS

PRELOAD = ["torch", "torch._dynamo", "torch.distributed.fsdp", "torch.distributed.optim"]
ADAM: dict[str, Any] = {"lr": RATE, "betas": (DECAY, DECAY_OF_SQUARE), "eps": EPSILON}
TOLERANCE = 1e-6
RANKS = 2


class Trained(NamedTuple):
    """The weights that a rank has reached, and how many elements of the state it keeps."""

    weights: Array
    parameters: int
    moments: int


def train(group: lp.Collective, digits: Data, steps: int) -> list[Trained]:
    """Train twice: with ZeroRedundancyOptimizer, then with FSDP2."""
    import torch

    group.init_torch()
    results = []
    for wrap in (zero_redundancy, fully_sharded):
        network = networks.in_torch(WIDTHS, networks.first_parameters(WIDTHS))
        model, adam = wrap(network)
        for step in range(steps):
            batch = digits.batch(step, BATCH)[group.rank :: group.size]
            images = torch.from_numpy(batch.inputs)
            labels = torch.from_numpy(batch.targets)
            adam.zero_grad()
            loss: Any = torch.nn.functional.cross_entropy(model(images), labels)
            loss.backward()
            adam.step()
        results.append(trained(network, getattr(adam, "optim", adam)))
    return results


def zero_redundancy(network: Any) -> tuple[Any, Any]:
    """Return a model of DDP, and an optimizer that keeps the state of some of its tensors."""
    import torch
    from torch.distributed.optim import ZeroRedundancyOptimizer

    adam = ZeroRedundancyOptimizer(network.parameters(), torch.optim.Adam, **ADAM)
    return torch.nn.parallel.DistributedDataParallel(network), adam


def fully_sharded(network: Any) -> tuple[Any, Any]:
    """Return a model whose tensors are cut along their first axis, and an optimizer for them."""
    import torch
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    mesh = init_device_mesh("cpu", (RANKS,))
    for part in (*network[::2], network):
        fully_shard(part, mesh=mesh)
    return network, torch.optim.Adam(network.parameters(), **ADAM)


def trained(network: Any, adam: Any) -> Trained:
    """Gather the weights, in the order of `networks.matrices`, and count."""
    tensors = [tensor for linear in network[::2] for tensor in (linear.weight.T, linear.bias)]
    full_tensors = [
        getattr(tensor, "full_tensor", lambda t=tensor: t)().detach() for tensor in tensors
    ]
    moments = [state[key] for state in adam.state.values() for key in ("exp_avg", "exp_avg_sq")]
    counts = [
        sum(own(tensor).numel() for tensor in tensors_of)
        for tensors_of in (network.parameters(), moments)
    ]
    return Trained(np.concatenate([tensor.numpy().flatten() for tensor in full_tensors]), *counts)


def own(tensor: Any) -> Any:
    """Return this rank's part of a tensor, if the tensor is cut."""
    return tensor.to_local() if hasattr(tensor, "to_local") else tensor


def compare(digits: Data, steps: int, alone: Array) -> None:
    """Launch torch's ranks as processes, and check their results."""
    program = lp.Program("zero-torch")
    with program.group("rank"):
        for _ in range(RANKS):
            program.add_node(lp.CollectiveNode(train, digits, steps))
    ranks = lp.run(program, "local_mp", preload=PRELOAD)["rank"]
    copies = {"ZeroRedundancyOptimizer": RANKS, "FSDP2": 1}
    for name, of_ranks in zip(copies, zip(*ranks, strict=True), strict=True):
        worst = float(np.abs(np.stack([rank.weights for rank in of_ranks]) - alone).max())
        claim = f"torch's {name} learns the same"
        check(worst <= TOLERANCE, claim, f"the largest difference is {worst:.0e}")
        _, parameters, moments = (list(counts) for counts in zip(*of_ranks, strict=True))
        check(
            (sum(parameters), sum(moments)) == (copies[name] * len(alone), 2 * len(alone)),
            f"its {RANKS} ranks keep {copies[name]}Ψ of parameters and 2Ψ of moments in all",
            f"{parameters} and {moments}",
        )
