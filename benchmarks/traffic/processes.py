"""The two processes: one serves on three carriers, the other calls it from many threads, and itself.

    serving: unix, tcp, tls  ◀──── calling: 8 threads, 2 event loops ────▶ inproc, in the same process

Each is told over its pipe what to do next, and answers with what it has seen.
"""

from __future__ import annotations

import asyncio
import ctypes
import faulthandler
import gc
import os
import signal
import sys
import threading
import time
import traceback
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from multiprocessing.connection import Connection
from typing import Any, NamedTuple, TypeVar

from benchmarks.harness import holdings
from benchmarks.traffic import kinds, service
from benchmarks.traffic.kinds import (
    AIO_KINDS,
    DEADLINE_S,
    KINDS,
    SLACK_S,
    Caller,
    LoopCaller,
    ThreadCaller,
)
from launchpad import courier
from launchpad.courier import keyring

T = TypeVar("T", bound=Caller)
N_THREADS = 8
N_LOOPS = 2
N_TASKS = 3
_STUCK_S = DEADLINE_S + 2 * SLACK_S  # after the end of a round
_MOST_ANSWERED = 0.01  # of the calls whose deadline is sure to pass
_QUIET_S = 4.0  # longer than threads and connections without work are kept


class Setup(NamedTuple):
    """The directory and the secrets that both processes know."""

    directory: str
    token: bytes
    credentials: courier.Credentials


def serve(setup: Setup, pipe: Connection) -> None:
    """The serving process. Answers any message with what it has (`inventory`)."""
    faulthandler.register(signal.SIGUSR1)  # shows the stacks
    keyring.add("tcp:", setup.token, setup.credentials)
    keyring.add("unix:", setup.token)
    keyring.add("tcp+plaintext:", setup.token)
    addresses = [f"unix:{setup.directory}/mixed", "tcp+plaintext:127.0.0.1:0", "tcp:127.0.0.1:0"]
    servers: list[courier.Server] = []

    def address_of(number: int) -> str:
        return servers[number].address

    with ExitStack() as stack:
        for i, address in enumerate(addresses):
            next_address = partial(address_of, (i + 1) % 3)
            servers.append(service.start(address, setup.token, next_address))
            stack.callback(servers[-1].stop)
        pipe.send([server.address for server in servers])
        while pipe.recv():
            pipe.send(inventory())


def inventory() -> holdings.Belongings:
    """Return what this process has, when nothing has changed for a while."""
    found = holdings.quiet_belongings(_QUIET_S, 5 * _QUIET_S)
    ctypes.CDLL(None).malloc_trim(0)
    return found


class Record:
    """The number and the times of calls of one kind."""

    def __init__(self) -> None:
        self.n = 0
        self.total_s = self.worst_s = 0.0


class Round:
    """Traffic for a while."""

    def __init__(self, clients: dict[str, Any], seconds: float, seed: int) -> None:
        self._clients = clients
        self._until = time.monotonic() + seconds
        self._seed = seed
        self._lock = threading.Lock()
        self._callers: list[Caller] = []
        self.records: dict[str, Record] = {}
        self.faults: list[str] = []

    def run(self) -> None:
        """Return when all threads have ended, or are stuck."""
        mains = [self._call] * N_THREADS + [self._call_in_a_loop] * N_LOOPS
        threads = [
            threading.Thread(target=main, args=(self._seed + i,), name=f"caller-{i}", daemon=True)
            for i, main in enumerate(mains)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(max(0.0, self._until + _STUCK_S - time.monotonic()))
        late = sum(caller.n_late for caller in self._callers)
        answered = sum(caller.n_answered for caller in self._callers)
        if answered > max(2, late * _MOST_ANSWERED):
            self.faults.append(f"{answered} of {late} calls were answered past their deadlines")
        if stuck := [thread.name for thread in threads if thread.is_alive()]:
            self.faults.append(f"stuck: {', '.join(stuck)}; their stacks are above")
            faulthandler.dump_traceback(sys.stderr)

    def _call(self, seed: int) -> None:
        caller = self._enrolled(ThreadCaller(self._clients, seed))
        while self._goes_on():
            kind = caller.random.choice(KINDS)
            carrier, client = caller.pick()
            with self._noted(kind.__name__, carrier):
                kind(caller, client)

    def _call_in_a_loop(self, seed: int) -> None:
        async def work(number: int) -> None:
            caller = self._enrolled(LoopCaller(self._clients, seed * 1000 + number))
            while self._goes_on():
                kind = caller.random.choice(AIO_KINDS)
                carrier, client = caller.pick()
                with self._noted(kind.__name__, carrier):
                    await kind(caller, client)

        async def main() -> None:
            await asyncio.gather(*(work(number) for number in range(N_TASKS)))

        asyncio.run(main())

    @contextmanager
    def _noted(self, kind: str, carrier: str) -> Iterator[None]:
        """Note how long the block takes, and any exception as a fault."""
        began = time.monotonic()
        try:
            yield
        except BaseException as error:
            self._add_fault(kind, carrier, error)
        self._note(kind, carrier, time.monotonic() - began)

    def _enrolled(self, caller: T) -> T:
        self._callers.append(caller)
        return caller

    def _goes_on(self) -> bool:
        return time.monotonic() < self._until and len(self.faults) < 20

    def _note(self, kind: str, carrier: str, took_s: float) -> None:
        with self._lock:
            record = self.records.setdefault(kind, Record())
            record.n += 1
            record.total_s += took_s
            record.worst_s = max(record.worst_s, took_s)
            if took_s > DEADLINE_S:
                self.faults.append(f"{kind} on {carrier} took {took_s:.1f} s")

    def _add_fault(self, kind: str, carrier: str, error: BaseException) -> None:
        text = "".join(traceback.format_exception(error))
        print(f"{kind} on {carrier}:\n{text}", file=sys.stderr, flush=True)
        with self._lock:
            self.faults.append(f"{kind} on {carrier}: {type(error).__name__}: {error}")


def call(setup: Setup, addresses: list[str], pipe: Connection) -> None:
    """The calling process. Asked for so many seconds, it answers with records, faults, inventory."""
    faulthandler.register(signal.SIGUSR1)  # shows the stacks
    keyring.add("tcp:", setup.token, setup.credentials)
    for prefix in ("unix:", "tcp+plaintext:", "inproc:"):
        keyring.add(prefix, setup.token)
    own = service.start(f"inproc:{setup.directory}/mixed", setup.token, lambda: addresses[0])
    clients: dict[str, Any] = {
        name: courier.Client(address, call_timeout=DEADLINE_S)
        for name, address in zip(
            ("unix", "tcp", "tls", "inproc"), [*addresses, own.address], strict=True
        )
    }
    kinds.expect(all(client.echo(1) == 1 for client in clients.values()), "echo")
    pipe.send(True)
    seed = 0
    while seconds := pipe.recv():
        current = Round(clients, seconds, seed)
        current.run()
        seed += N_THREADS + N_LOOPS
        for client in clients.values():
            client.rest()
            courier.close(client)
        gc.collect()
        found = inventory()
        faults = current.faults
        for name, client in clients.items():
            if n := client.rest():
                faults.append(f"{n} generators are open on {name} although no stream is")
            courier.close(client)
        pipe.send(
            (
                {kind: (r.n, r.total_s, r.worst_s) for kind, r in current.records.items()},
                faults,
                found,
            )
        )
        del current
    own.stop()
    os._exit(0)
