"""A pair of hosts: a server on one, callers on the other, and faults between them."""

from __future__ import annotations

import os
import pickle
import random
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from pathlib import Path
from typing import NamedTuple

from benchmarks.between_hosts.faults import KINDS, Fault, PlannedFault
from benchmarks.between_hosts.server import KEYS, PORT, RECORD
from launchpad.courier import make_credentials
from launchpad.testing.call_history import RecordedCall, read_calls
from tests.hosts.host import Host
from tests.hosts.host_process import HostProcess
from tests.hosts.network import Network
from tests.hosts.users import path_on

_STOP_S = 30.0
"""How long callers may take to end their calls when all faults are over."""

_SETTLE_S = 5.0
_OTHER_ADDRESS = 100


class PairHistory(NamedTuple):
    """A pair's calls by their ids, and its faults. All times are those of this process's clock."""

    calls: dict[str, RecordedCall]
    faults: list[Fault]


class Pair:
    """A server and callers, which run until `stop`.

    Args:
        lock: One for all pairs of the network. Whoever changes a host's power or address holds it, because
            the names of all hosts are written then, also on hosts that somebody else is just ending.

    Attributes:
        faults: The faults that the pair has had.
    """

    def __init__(
        self,
        network: Network,
        caller_host: Host,
        server_host: Host,
        lock: threading.Lock,
        seed: int,
    ) -> None:
        self.network = network
        self.caller_host = caller_host
        self.server_host = server_host
        self.faults: list[Fault] = []
        self._lock = lock
        self._rng = random.Random(seed)
        keys = pickle.dumps((os.urandom(16), make_credentials()))
        for host in (caller_host, server_host):
            path_on(host, KEYS).write_bytes(keys)
        self._server = self._start_server()
        self._caller = caller_host.popen(
            _module("caller", f"tcp:{server_host.name}:{PORT}"),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        assert self._caller.read_line() == "ready"

    @property
    def caller_record(self) -> Path:
        return path_on(self.caller_host, RECORD)

    @property
    def server_record(self) -> Path:
        return path_on(self.server_host, RECORD)

    def have(self, planned: Sequence[PlannedFault], is_over: threading.Event) -> None:
        """Have these faults, one after the other, and return when calls have recovered from the last one."""
        for pause_s, kind, lasts_s in planned:
            if is_over.wait(pause_s):
                break
            began = time.monotonic()
            with KINDS[kind](self):
                is_over.wait(lasts_s)
                mending = time.monotonic()
            self.faults.append(Fault(kind, began, mending, mended=time.monotonic()))
        is_over.wait(_SETTLE_S)

    def stop(self) -> None:
        """Let the callers end their calls. Those that hang are left without an end."""
        with self._server, self._caller:
            assert self._caller.stdin is not None
            self._caller.stdin.close()
            try:
                self._caller.wait(_STOP_S)
            except subprocess.TimeoutExpired:
                print(f"callers on {self.caller_host} did not end within {_STOP_S:g} s")

    def history(self) -> PairHistory:
        """Read both hosts' records."""
        calls = read_calls(self.caller_record, self.server_record)
        ahead_s = self.caller_host.clock_ahead_s
        for call in calls.values():
            if call.begun is not None:
                call.begun -= ahead_s
            if call.ended is not None:
                call.ended -= ahead_s
        return PairHistory({str(call_id): call for call_id, call in calls.items()}, self.faults)

    # --- what faults do

    def draw_host(self) -> Host:
        """Return one of the two hosts: a network may fail at either end."""
        return self._rng.choice([self.caller_host, self.server_host])

    def lose_power(self) -> None:
        """End the server's host without a packet from it."""
        with self._lock:
            self.server_host.lose_power()
        self._server.communicate()

    def boot(self) -> None:
        """Boot the server's host, and return when the server serves again."""
        with self._lock:
            self.network.boot(self.server_host)
        self._server = self._start_server()

    def lose_address(self) -> None:
        """Leave the server's host without an address."""
        self.server_host.run(["ip", "address", "flush", "dev", "eth0"])

    def get_other_address(self) -> None:
        """Give the server's host another address than it had. The server goes on."""
        cable = self.server_host.cable
        subnet, _, _ = cable.address.rpartition(".")
        addresses = [cable.address, f"{subnet}.{_OTHER_ADDRESS + cable.number}"]
        addresses.remove(self.server_host.address)
        with self._lock:
            self.network.readdress(self.server_host, addresses[0])

    def _start_server(self) -> HostProcess:
        server = self.server_host.popen(_module("server"), stdout=subprocess.PIPE)
        assert server.read_line() == "serves"
        return server


def run(network: Network, schedules: Sequence[Sequence[PlannedFault]], seed: int) -> list[Pair]:
    """Let two of the network's hosts have each of the schedules, all at the same time; return these pairs."""
    lock = threading.Lock()
    is_over = threading.Event()

    def run_pair(number: int) -> Pair:
        caller_host, server_host = network.hosts[2 * number : 2 * number + 2]
        pair = Pair(network, caller_host, server_host, lock, seed + number)
        pair.have(schedules[number], is_over)
        pair.stop()
        return pair

    with ThreadPoolExecutor(len(schedules)) as pool:
        futures = [pool.submit(run_pair, number) for number in range(len(schedules))]
        try:
            wait(futures, return_when=FIRST_EXCEPTION)
        finally:
            is_over.set()
    return [future.result() for future in futures]


def _module(name: str, *arguments: str) -> list[str]:
    return [sys.executable, "-m", f"benchmarks.between_hosts.{name}", *arguments]
