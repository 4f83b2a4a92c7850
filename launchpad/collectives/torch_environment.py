"""The environment variables that torchrun sets for each process, made for the ranks of a collective.

                      RANK  WORLD_SIZE  LOCAL_RANK  LOCAL_WORLD_SIZE  GROUP_RANK
    host a, CPUs        0       3            0              2              0
    host a, CPUs        1       3            1              2              0
    host b, CPUs        2       3            0              1              1

    host a, its own GPU 0       2            0              1              0
    host a, its own GPU 1       2            0              1              1

Scripts pass LOCAL_RANK to `torch.cuda.set_device`. A worker sees only the GPUs that it was given
(CUDA_VISIBLE_DEVICES), and they are numbered from 0. So each worker with GPUs counts as a separate node, as
on Kubernetes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class TorchRank:
    """The facts about a rank that torch needs. All ranks exchange them.

    Attributes:
        host: The name of the rank's host.
        address: The address at which the other ranks reach this host.
        port: A port that was free on this host.
        has_own_gpus: True if the rank sees GPUs that no other worker sees.
    """

    host: str
    address: str
    port: int
    has_own_gpus: bool


def variables(
    places: Sequence[TorchRank],
    rank: int,
    *,
    run_id: str,
    role: str,
    generation: int,
    max_restarts: int,
) -> dict[str, str]:
    """Return the variables that torchrun would set for this rank.

    `places` are in the order of ranks, and `generation` counts from 1.
    """
    nodes = [f"{p.host}/{r}" if p.has_own_gpus else p.host for r, p in enumerate(places)]
    order = list(dict.fromkeys(nodes))
    size = len(places)
    values = {
        "RANK": rank,
        "WORLD_SIZE": size,
        "LOCAL_RANK": nodes[:rank].count(nodes[rank]),
        "LOCAL_WORLD_SIZE": nodes.count(nodes[rank]),
        "GROUP_RANK": order.index(nodes[rank]),
        "GROUP_WORLD_SIZE": len(order),
        "ROLE_RANK": rank,
        "ROLE_WORLD_SIZE": size,
        "ROLE_NAME": role,
        "MASTER_ADDR": places[0].address,
        "MASTER_PORT": places[0].port,
        "TORCHELASTIC_RUN_ID": run_id,
        "TORCHELASTIC_RESTART_COUNT": generation - 1,
        "TORCHELASTIC_MAX_RESTARTS": max_restarts,
        "TORCHELASTIC_USE_AGENT_STORE": False,
    }
    return {name: str(value) for name, value in values.items()}
