"""Thousands of connections that say nothing, at each socket of a program: its own calls are answered."""

from __future__ import annotations

import re
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from launchpad.launch.rundir import control_server
from tests.helpers import scripts, silent_strangers
from tests.waiting import until

PROGRAM = """
import resource, time
resource.setrlimit(resource.RLIMIT_NOFILE, ({open_files}, {open_files}))
import launchpad as lp

class Server:
    def get(self):
        open("/dev/null").close()
        return 1

def ask(server, queue):
    longest_s, number = 0.0, 0
    while not lp.wait_for_stop(0.01):
        began = time.monotonic()
        number += server.get()
        queue.put(number)
        assert queue.get() == number
        longest_s = max(longest_s, time.monotonic() - began)
        print(f"longest of {{number}}: {{longest_s:.3f}} s", flush=True)

def reduce(group):
    while group.all_reduce(0 if lp.wait_for_stop(0.01) else 1, "min"):
        pass

program = lp.Program("open")
addresses = dict(also_at=["tcp:127.0.0.1:{tcp}", "grpc:127.0.0.1:{grpc}"])
server = program.add_node(lp.CourierNode(Server, courier_kwargs=addresses), label="server")
queue = program.add_node(lp.QueueNode(8), label="queue")
program.add_node(lp.PyNode(ask, server, queue), label="ask")
with program.group("rank"):
    for _ in range(2):
        program.add_node(lp.CollectiveNode(reduce))
lp.launch(program, "local_mp", terminal="output_to_files")
"""


def free_ports() -> list[int]:
    with socket.socket() as one, socket.socket() as two:
        for sock in (one, two):
            sock.bind(("127.0.0.1", 0))
        return [one.getsockname()[1], two.getsockname()[1]]


class Open:
    """The program, as its own user sees it from outside."""

    def __init__(self, process: subprocess.Popen[str], folder: Path, tcp: int, grpc: int) -> None:
        self.process, self._folder = process, folder
        self._ports = {"tcp": tcp, "grpc": grpc}

    def address(self, kind: str) -> str:
        """Of one of its sockets."""
        if kind in self._ports:
            return f"tcp:127.0.0.1:{self._ports[kind]}"
        names = {"control": "control.socket", "queue": "queue-0*", "rendezvous": "*endezvous*"}
        return f"unix:{until(lambda: next((self._folder / 'runs').glob(f'*/{names[kind]}'), None))}"

    def calls(self) -> tuple[int, float]:
        """How many were answered, and the longest time that one took."""
        logs = (self._folder / "logs").glob("open-*/ask-0.log")
        found = [each for log in logs for each in re.findall(r"of (\d+): (\S+) s", log.read_text())]
        return (int(found[-1][0]), float(found[-1][1])) if found else (0, 0.0)


@pytest.fixture
def program(request: pytest.FixtureRequest) -> Iterator[Open]:
    open_files = request.param
    tcp, grpc = free_ports()
    with tempfile.TemporaryDirectory(prefix="lp-", dir="/tmp") as name:
        folder = Path(name)
        environment = scripts.environment(
            LAUNCHPAD_RUNTIME_DIR=f"{name}/runs", LAUNCHPAD_LOGGING_DIR=f"{name}/logs"
        )
        source = PROGRAM.format(open_files=open_files, tcp=tcp, grpc=grpc)
        with scripts.start(scripts.write(folder, source), env=environment) as process:
            started = Open(process, folder, tcp, grpc)
            until(lambda: started.calls()[0] or process.poll() is not None)
            yield started
            process.send_signal(signal.SIGINT)
            said, _ = process.communicate(timeout=60)
        assert process.returncode == 130, said


KINDS = ["tcp", "grpc", "control", "queue", "rendezvous"]


@pytest.mark.slow
@pytest.mark.parametrize("program", [128], indirect=True)
def test_more_strangers_than_descriptors_do_not_fail_a_program(program: Open) -> None:
    for kind in KINDS:
        with silent_strangers.at(program.address(kind), 200):
            enough = program.calls()[0] + 10
            until(lambda n=enough: program.calls()[0] > n)


@pytest.mark.endurance
@pytest.mark.parametrize("program", [1024], indirect=True)
@pytest.mark.parametrize("kind", KINDS)
def test_2000_strangers_at_a_socket_for_a_minute_hold_up_no_call_for_a_second(
    program: Open, kind: str
) -> None:
    control = program.address("control").removeprefix("unix:")
    longest_status_s = 0.0

    with silent_strangers.at(program.address(kind), 2000):
        ends_at = time.monotonic() + 60
        while time.monotonic() < ends_at and program.process.poll() is None:
            began = time.monotonic()
            with control_server.connected(Path(control).parent) as client:  # a new one each time
                assert {row["state"] for row in client.status()} == {"running"}
            longest_status_s = max(longest_status_s, time.monotonic() - began)
            time.sleep(0.1)

    number, longest_s = program.calls()
    assert number > 1000
    assert longest_s < 1
    assert longest_status_s < 1
