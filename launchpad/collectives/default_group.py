"""torch's default group, for code that is written for torchrun: DDP, FSDP, and code built on them.

    init_torch()                      sets torchrun's variables, and makes the default group
    init_torch(default_group=False)   sets the variables; the code calls dist.init_process_group() itself

Both find the other ranks through a CourierStore. For the second, a handler for `env://` replaces torch's own
and returns this store. MASTER_ADDR and MASTER_PORT contain a port that was free, but torch never opens it.

With `default_group=False`, torch is not imported here: the handler is set when the code imports
torch.distributed. So a script that only reads the variables does without torch.
"""

from __future__ import annotations

import os
import pickle
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs, urlparse

from launchpad.collectives import network
from launchpad.collectives.generation import NOTICE_S, Generation
from launchpad.collectives.stuck import StuckWatch
from launchpad.collectives.torch_environment import TorchRank, variables
from launchpad.courier import CourierError
from launchpad.runtime import context, import_hook

if TYPE_CHECKING:
    from launchpad.collectives.torch_store import TorchStores

_LONGEST_WAIT_S = 300.0
"""Seconds to wait until all ranks have told their addresses."""


class DefaultGroup:
    """torch's default group of this process, in one generation.

    Args:
        client: The client of the rendezvous.
        generation: The generation with the group's ranks.

    Raises:
        RuntimeError: there is a default group already.
    """

    def __init__(self, client: Any, generation: Generation) -> None:
        self._client = client
        self._generation = generation
        self._n_made = 0
        self._is_closed = False
        self._stores: TorchStores | None = None
        os.environ.update(self._variables())
        import_hook.when_imported("torch.distributed", self._take_over)

    def make(self, backend: str | None) -> None:
        """Make the group. By default, it uses gloo for CPUs, and nccl for GPUs if there are any."""
        import torch
        import torch.distributed as dist

        if backend is None:
            backend = "cpu:gloo,cuda:nccl" if torch.cuda.is_available() else "gloo"
        dist.init_process_group(backend)
        # Check this here, because torch reports success even if the generation has ended during the wait.
        self._generation.check()

    def close(self, *, has_raised: bool) -> None:
        """Drop the group, and all groups made from it."""
        self._is_closed = True
        if self._stores is None:
            return
        import torch.distributed as dist

        if dist.is_initialized():
            dist.destroy_process_group()
        self._stores.shut()
        self._groups.kept.clear()
        self._watch.close()

    def _take_over(self, dist: Any) -> None:
        """Make torch find the other ranks through launchpad. `dist` is torch.distributed."""
        # The function may have ended without torch, and the next generation's function imports it.
        if self._is_closed:
            return
        if dist.is_initialized():
            raise RuntimeError(
                f"{context.current().name} has a default group of torch already: call init_torch() once,"
                " before the code that calls dist.init_process_group()"
            )
        from launchpad.collectives.torch_store import TorchStores

        self._stores = TorchStores(self._client, self._generation)
        self._generation.on_end(lambda error: _abort_nccl())
        self._generation.on_stop(_abort_nccl)
        handlers = sys.modules["torch.distributed.rendezvous"]._rendezvous_handlers
        handlers["env"] = self._rendezvous
        c10d: Any = sys.modules["torch.distributed.distributed_c10d"]
        self._groups = _Groups()
        c10d._pg_map = self._groups
        # Ranks find a group by its number, so all ranks must start with the same number. torch also counts
        # groups that it failed to make, and in an earlier generation only some ranks may have failed to make
        # one.
        c10d._world.group_count = 0
        self._watch = StuckWatch(self._generation)

    def _variables(self) -> dict[str, str]:
        me = context.current()
        generation = self._generation
        address = network.own_address(me)
        if not os.environ.get("GLOO_SOCKET_IFNAME"):
            interface = network.interface_of(address)
            if interface:
                os.environ["GLOO_SOCKET_IFNAME"] = interface
        host = generation.members[generation.rank].host
        port = network.free_port(address)
        place = TorchRank(host, address, port, bool(os.environ.get("CUDA_VISIBLE_DEVICES")))
        places = self._all_places(place)
        return variables(
            places,
            generation.rank,
            run_id=f"{me.program}/{me.label}",
            role=me.label,
            generation=generation.number,
            max_restarts=me.link.policy.max_restarts,
        )

    def _all_places(self, place: TorchRank) -> list[TorchRank]:
        """Tell the other ranks this rank's place, and return the places of all of them.

        Raises:
            PeerFailed: another rank has failed.
        """
        generation = self._generation
        keys = [f"torchrun/{member.rank}" for member in generation.members]
        own_key = keys[generation.rank]
        client = self._client.with_options(timeout_s=_LONGEST_WAIT_S + NOTICE_S)
        try:
            client.store_set(generation.number, own_key, pickle.dumps(place))
            values = client.store_get(generation.number, keys, _LONGEST_WAIT_S)
        except (CourierError, LookupError, TimeoutError) as error:
            generation.wait_end(NOTICE_S)
            raise (generation.error or error) from None
        return [pickle.loads(value) for value in values]

    def _rendezvous(self, url: str, **kwargs: object) -> Iterator[tuple[Any, int, int]]:
        """Return the store, rank and size for `env://`. torch calls this as its rendezvous handler."""
        query = parse_qs(urlparse(url).query)
        rank = int(query.get("rank", [os.environ["RANK"]])[0])
        size = int(query.get("world_size", [os.environ["WORLD_SIZE"]])[0])
        self._n_made += 1
        assert self._stores is not None
        yield self._stores.new(f"torch {self._n_made}"), rank, size


class _Groups(dict[Any, Any]):
    """A replacement for torch's table of groups, which also keeps destroyed groups.

    If DDP has the last reference to a gloo group, deleting the group waits for gloo's threads while holding
    the interpreter's lock. One of these threads needs this lock to drop its last work, so both wait forever.
    If a group is destroyed right after its last work, this happens one time in ten. With this table, DDP
    never has the last reference, and the table's references are dropped without the lock.
    """

    def __init__(self) -> None:
        self.kept: list[Any] = []

    def __setitem__(self, group: Any, value: Any) -> None:
        self.kept.append(group)
        super().__setitem__(group, value)


def _abort_nccl() -> None:
    """Abort nccl's groups, to free the threads that wait in them. We cannot find nccl's connections."""
    import torch.distributed as dist

    if dist.is_initialized() and "nccl" in dist.get_backend_config():
        from torch.distributed.distributed_c10d import _abort_process_group

        _abort_process_group()
