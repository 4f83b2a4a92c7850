"""Programs on hosts that show what a network does to packets and connections."""

from __future__ import annotations

import subprocess
from types import TracebackType
from typing import Self

from tests.hosts.host import Host
from tests.hosts.host_process import HostProcess

_DATAGRAMS = """
import contextlib, socket, sys, threading

sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 20)
sock.bind(("", 7001))

def say(line):
    # At once, since two threads do so, and print() writes the end of the line by itself.
    sys.stdout.write(f"{line}\\n")

def receive():
    while True:
        say(f"received {sock.recv(100).decode()}")

threading.Thread(target=receive, daemon=True).start()
say("ready")
for line in sys.stdin:
    host, text = line.split()
    with contextlib.suppress(OSError):
        sock.sendto(text.encode(), (host, 7001))
    say("sent")
"""

_SERVER = """
import contextlib, socket, threading

def echo(connection):
    with contextlib.suppress(ConnectionError):
        while data := connection.recv(1 << 16):
            connection.sendall(data)

listener = socket.create_server(("", 7002))
print("ready")
while True:
    connection, _ = listener.accept()
    threading.Thread(target=echo, args=[connection], daemon=True).start()
"""

_CLIENT = """
import fcntl, select, socket, struct, sys, time

SIOCOUTQ = 0x5411

def retransmits():
    return sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 8)[2]

def unacknowledged():
    return struct.unpack("i", fcntl.ioctl(sock, SIOCOUTQ, bytes(4)))[0]

def has_ended():
    try:
        return select.select([sock], [], [], 0)[0] and not sock.recv(1 << 16, socket.MSG_PEEK)
    except ConnectionError:
        return True

def probe():
    before = retransmits()
    try:
        sock.sendall(b"x")
    except ConnectionError:
        return "ended"
    while True:
        if has_ended():
            return "ended"
        if not unacknowledged():
            return "acknowledged"
        if retransmits() >= before + 2:
            return "silent"
        time.sleep(0.005)

def drain():
    while select.select([sock], [], [], 0)[0]:
        sock.recv(1 << 16)

def echo(n):
    drain()
    began = time.monotonic()
    sock.sendall(bytes(n))
    left = n
    while left:
        left -= len(sock.recv(left))
    return time.monotonic() - began

sock = socket.create_connection((sys.argv[1], 7002))
sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
print("connected")
for line in sys.stdin:
    command, *arguments = line.split()
    print(probe() if command == "probe" else echo(int(arguments[0])))
"""


class Datagrams:
    """A program on a host that sends datagrams to programs of its kind on other hosts, and receives theirs.

    Attributes:
        received: The texts of the datagrams that have been read from the program, in their order.
    """

    def __init__(self, host: Host) -> None:
        self.name = host.name
        self._process = _start(host, _DATAGRAMS, first_line="ready")
        self.received: list[str] = []

    def send(self, to: Datagrams, text: str) -> None:
        """Send one datagram, and return when it has left."""
        self._process.write_line(f"{to.name} {text}")
        while (line := self._process.read_line()) != "sent":
            self.received.append(line.removeprefix("received "))

    def wait_for(self, text: str) -> None:
        """Return when a datagram with this text has been received."""
        while text not in self.received:
            self.received.append(self._process.read_line().removeprefix("received "))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._process.__exit__(kind, value, traceback)


class Connection:
    """A TCP connection from a program on one host to a program on another one, which sends back what it gets.

    Attributes:
        server: The process that has the other end.
    """

    def __init__(self, client: Host, server: Host) -> None:
        self.server = _start(server, _SERVER, first_line="ready")
        self._client = _start(client, _CLIENT, server.name, first_line="connected")

    def probe(self) -> str:
        """Send a byte. Return what the client's kernel knows then: "acknowledged", "silent" or "ended"."""
        self._client.write_line("probe")
        return self._client.read_line()

    def echo_s(self, n_bytes: int) -> float:
        """Return the seconds until the server has sent back so many bytes."""
        self._client.write_line(f"echo {n_bytes}")
        return float(self._client.read_line())

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        for process in (self._client, self.server):
            process.__exit__(kind, value, traceback)


def _start(host: Host, source: str, *arguments: str, first_line: str) -> HostProcess:
    process = host.python(source, *arguments, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    line = process.read_line()
    assert line == first_line, f"{process} on {host} printed {line!r}"
    return process
