"""Calls over TLS between two hosts, while the network or the server's host fails."""

from __future__ import annotations

import os
import pickle
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from launchpad.courier import make_credentials
from tests.hosts.host import Host
from tests.hosts.host_process import HostProcess
from tests.hosts.network import Network
from tests.hosts.users import path_on

KEYS = Path("/var/keys.pickle")

SERVER = """
import pickle, sys, time
from launchpad.courier import Server, keyring

keyring.add("tcp:", *pickle.load(open("/var/keys.pickle", "rb")))
server = Server("notes", address="tcp:h2:7000")
notes = []

def note(text, seconds):
    notes.append(text)
    time.sleep(seconds)
    return len(notes)

server.bind("note", note)
server.start()
print("serves", flush=True)
time.sleep(1000)
"""

CLIENT = """
import pickle, sys
from launchpad.courier import Client, CourierError, keyring

keyring.add("tcp:", *pickle.load(open("/var/keys.pickle", "rb")))
with Client("tcp:h2:7000") as client:
    for line in sys.stdin:
        text, seconds = line.split()
        print("calls", flush=True)
        try:
            print(client.note(text, float(seconds)), flush=True)
        except CourierError as error:
            print(type(error).__name__, flush=True)
"""


class Pair:
    """A server on h2, and a client on h1."""

    def __init__(self, network: Network) -> None:
        self.network = network
        self.client_host, self.server_host, _ = network.hosts
        keys = pickle.dumps((os.urandom(16), make_credentials()))
        for host in (self.client_host, self.server_host):
            path_on(host, KEYS).write_bytes(keys)
        self.server = self.start_server()
        self.client = self.client_host.python(CLIENT, stdin=subprocess.PIPE)
        assert self.note("first") == "1"

    def start_server(self) -> HostProcess:
        server = self.server_host.python(SERVER)
        assert server.read_line() == "serves"
        return server

    def begin(self, text: str, seconds: float = 0.0) -> None:
        """Have the client make a call that takes so long, and return when it makes it."""
        self.client.write_line(f"{text} {seconds}")
        assert self.client.read_line() == "calls"

    def end(self) -> str:
        """Return what the client has got: the answer, or the name of the error."""
        return self.client.read_line()

    def note(self, text: str) -> str:
        self.begin(text)
        return self.end()

    def close(self) -> None:
        for process in (self.client, self.server):
            process.kill()
            process.communicate()


@pytest.fixture
def pair(network: Network) -> Iterator[Pair]:
    pair = Pair(network)
    yield pair
    network.end_faults()
    pair.close()


def pull_cable(host: Host) -> Callable[[], None]:
    host.pull_cable()
    return host.plug_in


def lose_what_comes(host: Host) -> Callable[[], None]:
    host.blackhole("in")
    return host.end_losses


def lose_what_leaves(host: Host) -> Callable[[], None]:
    host.blackhole("out")
    return host.end_losses


def pause(host: Host) -> Callable[[], None]:
    host.pause()
    return host.resume


SILENCE = [pull_cable, lose_what_comes, lose_what_leaves, pause]


@pytest.mark.parametrize("fault", SILENCE, ids=lambda fault: fault.__name__)
def test_a_call_to_a_host_that_falls_silent_may_have_run_and_the_next_one_waits_for_it(
    pair: Pair, fault: Callable[[Host], Callable[[], None]]
) -> None:
    pair.begin("in-flight", seconds=60)
    end_fault = fault(pair.server_host)

    assert pair.end() == "OutcomeUnknown"
    pair.begin("waits")
    end_fault()
    assert pair.end() in ("2", "3")


@pytest.mark.timing
def test_a_call_from_a_host_whose_own_cable_is_out_may_have_run(pair: Pair) -> None:
    pair.client_host.pull_cable()
    began = time.monotonic()

    pair.begin("in-flight")
    outcome = pair.end()
    took_s = time.monotonic() - began

    assert outcome == "OutcomeUnknown"
    assert took_s < 4


def test_a_call_survives_a_cable_that_is_out_for_a_second(pair: Pair) -> None:
    pair.begin("in-flight", seconds=2)

    pair.server_host.pull_cable()
    time.sleep(1)  # the cable is out
    pair.server_host.plug_in()

    assert pair.end() == "2"


def test_a_call_to_a_frozen_host_takes_as_long_as_the_host_is_frozen(pair: Pair) -> None:
    pair.begin("in-flight", seconds=1)

    pair.server_host.freeze()
    time.sleep(5)  # longer than a client waits for a silent host
    pair.server_host.thaw()

    assert pair.end() == "2"


def test_a_client_finds_the_server_of_a_host_that_lost_its_power_and_booted(pair: Pair) -> None:
    pair.begin("in-flight", seconds=60)
    pair.server_host.lose_power()
    assert pair.end() == "OutcomeUnknown"
    pair.server.communicate()

    pair.begin("waits")
    pair.network.boot(pair.server_host)
    pair.server = pair.start_server()

    assert pair.end() == "1"


def test_a_client_finds_a_server_whose_host_has_another_address(pair: Pair) -> None:
    pair.begin("in-flight", seconds=60)
    pair.network.readdress(pair.server_host, "10.77.0.99")
    assert pair.end() == "OutcomeUnknown"
    pair.server.kill()
    pair.server.communicate()

    pair.begin("waits")
    pair.server = pair.start_server()

    assert pair.end() == "1"
