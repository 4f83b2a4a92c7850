"""Workers of a pool that are servers of this process, and jobs that wait at gates."""

from __future__ import annotations

import threading
from typing import Any

from launchpad import courier
from launchpad.pools.worker import PoolWorker
from tests.waiting import until

DEADLINE_S = 30.0
gates: dict[str, threading.Event] = {}
"""The gates that jobs wait for: the workers are threads of this process."""


def pass_gate(name: str) -> str:
    assert gates[name].wait(DEADLINE_S)
    return name


def open_gates() -> None:
    for gate in gates.values():
        gate.set()


def open_gate(name: str) -> str:
    gates[name].set()
    return name


class LocalWorkers:
    """The servers of some PoolWorkers, and their clients."""

    def __init__(self, folder: str, n: int) -> None:
        self.served = [PoolWorker() for _ in range(n)]
        self.servers = []
        self.clients = []
        self.end: Exception | None = None
        for number, served in enumerate(self.served):
            name = f"worker-{number}"
            address = f"unix:{folder}/{number}"
            server = courier.Server(name, address=address)
            server.bind_object(served)
            server.start()
            self.servers.append(server)
            client = courier.Client[Any](address, name=name, failure_check=lambda: self.end)
            self.clients.append(client)

    def busy(self) -> int:
        """Wait until a worker runs something, and return its number."""
        until(lambda: any(served._running for served in self.served))
        return next(i for i, served in enumerate(self.served) if served._running)

    def stop(self, number: int, grace_s: float = 0.0) -> None:
        """Stop a worker; without grace it is as if its process had ended."""
        self.served[number].end()
        self.servers[number].stop(grace_s)

    def close(self) -> None:
        open_gates()
        for number in range(len(self.servers)):
            self.stop(number)
        for client in self.clients:
            courier.close(client)
