"""F44: a server that runs out of file descriptors."""

from __future__ import annotations

import subprocess
import threading
from collections.abc import Iterator

import pytest

from tests.courier.conftest import begin_source, in_background

SERVER = """{begin}
import contextlib, resource, sys, time
sys.stderr = sys.stdout
files = []
def exhaust():
    with contextlib.suppress(OSError):
        while True:
            files.append(open("/dev/null"))
server = courier.Server("poor", address={address!r})
server.bind("echo", lambda value: value)
server.bind("exhaust", exhaust)
server.bind("release", files.clear)
server.bind("cpu_s", time.process_time)
server.start()
hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
resource.setrlimit(resource.RLIMIT_NOFILE, (40, hard))
print("up", flush=True)
server.join()
"""


@pytest.fixture
def poor_server(python, socket_address) -> Iterator[subprocess.Popen[str]]:
    with python(SERVER.format(begin=begin_source(), address=socket_address)) as process:
        assert process.stdout.readline() == "up\n"
        yield process


def test_f44_old_clients_are_served_while_there_are_no_descriptors_and_new_ones_afterwards(
    poor_server, connect, socket_address
) -> None:
    old = connect(socket_address, call_timeout=20)
    assert [old.echo(1), old.futures.echo(2).result(10)] == [1, 2]

    old.exhaust()
    newcomer = in_background(connect(socket_address).echo, "new")
    assert [old.echo(i) for i in range(200)] == [*range(200)]
    futures = [old.futures.echo(i) for i in range(200)]
    assert [future.result(10) for future in futures] == [*range(200)]
    assert not newcomer.done()
    old.release()

    assert newcomer.result(20) == "new"


@pytest.mark.parametrize("socket_address", ["unix"], indirect=True)
def test_f44_a_server_without_descriptors_says_so_once_and_does_not_spin(
    poor_server, connect, socket_address
) -> None:
    client = connect(socket_address, call_timeout=20)
    client.exhaust()
    newcomer = in_background(connect(socket_address).echo, "new")
    said = poor_server.stdout.readline()
    before = client.cpu_s()
    threading.Event().wait(0.5)  # no order is awaited: this is the time that it could spin
    used_s = client.cpu_s() - before
    client.release()
    assert newcomer.result(20) == "new"
    poor_server.kill()

    assert "takes no new clients for now, and they wait: [Errno 24]" in said
    assert "ulimit -n" in said
    assert used_s < 0.1
    assert poor_server.stdout.read() == ""
