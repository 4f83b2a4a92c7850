"""torch's default group, for code that is written for torchrun: DDP, FSDP, and what is built on them.

    init_torch()                      sets torchrun's variables, and makes the default group
    init_torch(default_group=False)   sets them; the code calls dist.init_process_group() itself

Both find the other ranks in our store. For the second, torch's handler for `env://` is replaced by one that
gives it: MASTER_ADDR and MASTER_PORT are set, to a port that was free, but torch opens nothing there.
"""

from __future__ import annotations

import os
import pickle
import sys
from collections.abc import Iterator
from typing import Any
from urllib.parse import parse_qs, urlparse

from launchpad.collectives import network
from launchpad.collectives.generation import Generation
from launchpad.collectives.stuck import StuckWatch
from launchpad.collectives.torch_environment import TorchRank, variables
from launchpad.collectives.torch_store import TorchStores
from launchpad.runtime import context


class DefaultGroup:
    """torch's default group of this process, in one generation.

    Args:
        client: Of the rendezvous.
        generation: The one whose ranks it is of.

    Raises:
        RuntimeError: there is a default group already.
    """

    def __init__(self, client: Any, generation: Generation) -> None:
        import torch.distributed as dist

        if dist.is_initialized():
            raise RuntimeError(
                f"{context.current().name} has a default group of torch already: call init_torch() once,"
                " before the code that calls dist.init_process_group()"
            )
        self._generation, self._n_made = generation, 0
        self._stores = TorchStores(client, generation)
        generation.on_end(lambda error: _abort_nccl())
        generation.on_stop(_abort_nccl)
        os.environ.update(self._variables())
        handlers = sys.modules["torch.distributed.rendezvous"]._rendezvous_handlers
        handlers["env"] = self._rendezvous
        c10d: Any = sys.modules["torch.distributed.distributed_c10d"]
        self._groups = c10d._pg_map = _Groups()
        # Ranks find a group by its number. torch also counts one whose making has failed: an earlier
        # generation may have ended with that, in some of the ranks only.
        c10d._world.group_count = 0
        self._watch = StuckWatch(generation)

    def make(self, backend: str | None) -> None:
        """Makes it. By default for CPUs with gloo, and for GPUs, if it has any, with nccl."""
        import torch
        import torch.distributed as dist

        if backend is None:
            backend = "cpu:gloo,cuda:nccl" if torch.cuda.is_available() else "gloo"
        dist.init_process_group(backend)
        self._generation.check()  # what it waited for may have been ended, which it takes for success

    def close(self, *, has_raised: bool) -> None:
        """Drops it, and all groups that were made from it."""
        import torch.distributed as dist

        if dist.is_initialized():
            dist.destroy_process_group()
        self._stores.shut()
        self._groups.kept.clear()
        self._watch.close()

    def _variables(self) -> dict[str, str]:
        me, generation = context.current(), self._generation
        address = network.own_address(me)
        if not os.environ.get("GLOO_SOCKET_IFNAME") and (name := network.interface_of(address)):
            os.environ["GLOO_SOCKET_IFNAME"] = name
        host, port = generation.members[generation.rank].host, network.free_port(address)
        here = TorchRank(host, address, port, bool(os.environ.get("CUDA_VISIBLE_DEVICES")))
        store = self._stores.new("torchrun")
        store.set(f"rank/{generation.rank}", pickle.dumps(here))
        size = len(generation.members)
        places = [pickle.loads(p) for p in store.multi_get([f"rank/{r}" for r in range(size)])]
        return variables(
            places,
            generation.rank,
            run_id=f"{me.program}/{me.label}",
            role=me.label,
            generation=generation.number,
            max_restarts=me.link.policy.max_restarts,
        )

    def _rendezvous(self, url: str, **kwargs: object) -> Iterator[tuple[Any, int, int]]:
        """What torch calls for `env://`."""
        asked = parse_qs(urlparse(url).query)
        rank = int(asked.get("rank", [os.environ["RANK"]])[0])
        size = int(asked.get("world_size", [os.environ["WORLD_SIZE"]])[0])
        self._n_made += 1
        yield self._stores.new(f"torch {self._n_made}"), rank, size


class _Groups(dict[Any, Any]):
    """In place of the table in which torch has its groups: keeps those that have been destroyed, too.

    Where DDP has the last reference to a group of gloo, its end waits for gloo's threads while it holds the
    interpreter's lock, which one of them needs to drop what it has done last: a deadlock, one time in ten
    where the group is destroyed just after. From here references are dropped without that lock.
    """

    def __init__(self) -> None:
        self.kept: list[Any] = []

    def __setitem__(self, group: Any, value: Any) -> None:
        self.kept.append(group)
        super().__setitem__(group, value)


def _abort_nccl() -> None:
    """Frees what waits in nccl, whose connections are not ours to find."""
    import torch.distributed as dist

    if dist.is_initialized() and "nccl" in dist.get_backend_config():
        from torch.distributed.distributed_c10d import _abort_process_group

        _abort_process_group()
