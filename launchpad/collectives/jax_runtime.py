"""jax.distributed among the ranks of a collective: `jax.devices()` has the devices of all ranks.

    rank 0   listens at a port that was free, and puts its address into the store
    others   find the address there

A process has one jax runtime, and cannot start a second one later. So if a rank fails, the processes of all
ranks must end. Threads that wait in jax would wait for minutes, so launchpad ends the processes soon after
the failure.
"""

from __future__ import annotations

import os
import sys
import threading
from typing import Any

from launchpad.collectives import network
from launchpad.collectives.freeing import in_thread
from launchpad.collectives.generation import NOTICE_S, Generation
from launchpad.courier import CourierError
from launchpad.runtime import context

_FIND_S = 300.0
_SHUTDOWN_S = 30
_LEAVE_S = 1.0
"""Seconds that the worker has, after a rank has failed, to end by itself."""


class JaxRuntime:
    """jax.distributed in this process, in one generation.

    Args:
        client: The client of the rendezvous.
        generation: The generation whose ranks use it.
    """

    def __init__(self, client: Any, generation: Generation) -> None:
        import jax

        me = context.current()
        self._generation = generation
        address = network.own_address(me)
        try:
            if generation.rank == 0:
                host = f"[{address}]" if ":" in address else address
                own_coordinator = f"{host}:{network.free_port(address)}"
                client.store_set(generation.number, "jax", own_coordinator.encode())
            (coordinator_bytes,) = client.store_get(generation.number, ["jax"], _FIND_S)
        except (CourierError, LookupError, TimeoutError):
            generation.wait_end(NOTICE_S)
            generation.check()
            raise
        coordinator = coordinator_bytes.decode()
        in_thread(
            generation,
            lambda: jax.distributed.initialize(
                coordinator,
                len(generation.members),
                generation.rank,
                cluster_detection_method="deactivate",
                coordinator_bind_address=coordinator,
                shutdown_timeout_seconds=_SHUTDOWN_S,
            ),
        )
        generation.on_end(lambda error: _end_soon(me.name, error))

    def close(self, *, has_raised: bool) -> None:
        """Shut down jax together with the other ranks, unless the generation or this rank has failed."""
        import jax

        if self._generation.error is None and not has_raised:
            jax.distributed.shutdown()  # type: ignore[no-untyped-call, unused-ignore]


def _end_soon(name: str, error: Exception) -> None:
    def end() -> None:
        print(f"{name} leaves: {error}; jax.distributed cannot go on without it", file=sys.stderr)
        sys.stderr.flush()
        os._exit(1)

    timer = threading.Timer(_LEAVE_S, end)
    timer.daemon = True
    timer.start()
