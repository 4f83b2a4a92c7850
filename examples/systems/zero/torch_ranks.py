"""The same training with torch's ZeroRedundancyOptimizer (stage 1) and FSDP2 (stage 3)."""

from typing import Any, NamedTuple

import numpy as np

import launchpad as lp
from examples._shared import networks
from examples._shared.checks import check
from examples._shared.digits import Array, Digits
from examples.systems.zero.adam import DECAY, DECAY_OF_SQUARE, EPSILON, RATE
from examples.systems.zero.model import BATCH, WIDTHS

PRELOAD = ["torch", "torch._dynamo", "torch.distributed.fsdp", "torch.distributed.optim"]
ADAM: dict[str, Any] = {"lr": RATE, "betas": (DECAY, DECAY_OF_SQUARE), "eps": EPSILON}
TOLERANCE = 1e-6
RANKS = 2


class Trained(NamedTuple):
    """What a rank has come to, and how many elements it keeps of it."""

    weights: Array
    parameters: int
    moments: int


def train(group: lp.Collective, digits: Digits, steps: int) -> list[Trained]:
    """Train twice: with the one, and with the other."""
    import torch

    group.init_torch()
    found = []
    for wrap in (zero_redundancy, fully_sharded):
        network = networks.in_torch(WIDTHS, networks.first_parameters(WIDTHS))
        model, adam = wrap(network)
        for step in range(steps):
            batch = digits.batch(step, BATCH)[group.rank :: group.size]
            images, labels = torch.from_numpy(batch.images), torch.from_numpy(batch.labels)
            adam.zero_grad()
            loss: Any = torch.nn.functional.cross_entropy(model(images), labels)
            loss.backward()
            adam.step()
        found.append(trained(network, getattr(adam, "optim", adam)))
    return found


def zero_redundancy(network: Any) -> tuple[Any, Any]:
    """Return a model of DDP, and an optimizer that has the state of some of its tensors."""
    import torch
    from torch.distributed.optim import ZeroRedundancyOptimizer

    adam = ZeroRedundancyOptimizer(network.parameters(), torch.optim.Adam, **ADAM)
    return torch.nn.parallel.DistributedDataParallel(network), adam


def fully_sharded(network: Any) -> tuple[Any, Any]:
    """Return a model whose tensors are cut along their first axis, and an optimizer of these."""
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
    wholes = [getattr(tensor, "full_tensor", lambda t=tensor: t)().detach() for tensor in tensors]
    moments = [state[key] for state in adam.state.values() for key in ("exp_avg", "exp_avg_sq")]
    kept = [sum(own(each).numel() for each in group) for group in (network.parameters(), moments)]
    return Trained(np.concatenate([whole.numpy().flatten() for whole in wholes]), *kept)


def own(tensor: Any) -> Any:
    """Return this rank's part, if it is cut."""
    return tensor.to_local() if hasattr(tensor, "to_local") else tensor


def compare(digits: Digits, steps: int, alone: Array) -> None:
    """Launch it, as processes, and check what comes of it."""
    program = lp.Program("zero-torch")
    with program.group("rank"):
        for _ in range(RANKS):
            program.add_node(lp.CollectiveNode(train, digits, steps))
    ranks = lp.run(program, "local_mp", preload=PRELOAD)["rank"]
    copies = {"ZeroRedundancyOptimizer": RANKS, "FSDP2": 1}
    for name, found in zip(copies, zip(*ranks, strict=True), strict=True):
        worst = float(np.abs(np.stack([rank.weights for rank in found]) - alone).max())
        claim = f"torch's {name} learns the same"
        check(worst <= TOLERANCE, claim, f"the largest difference is {worst:.0e}")
        _, parameters, moments = (list(kept) for kept in zip(*found, strict=True))
        check(
            (sum(parameters), sum(moments)) == (copies[name] * len(alone), 2 * len(alone)),
            f"its {RANKS} ranks keep {copies[name]}Ψ of parameters and 2Ψ of moments in all",
            f"{parameters} and {moments}",
        )
