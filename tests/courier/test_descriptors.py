"""F44: a server that runs out of file descriptors."""

from __future__ import annotations

import contextlib
import errno
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from tests.courier.conftest import begin_source, reach
from tests.waiting import until

MOST = 40  # descriptors
SERVER = """{begin}
import os, resource, time
server = courier.Server("poor", address={address!r})
server.bind("echo", lambda value: value)
server.bind("open_one", lambda: open("/dev/null").close())
server.bind("cpu_s", time.process_time)
server.start()
hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
resource.setrlimit(resource.RLIMIT_NOFILE, ({most}, hard))
print("up", flush=True)
server.join()
"""


@pytest.fixture
def poor_server(python, socket_address) -> Iterator[str]:
    source = SERVER.format(begin=begin_source(), address=socket_address, most=MOST)
    with python(source) as process:
        assert process.stdout.readline() == "up\n"
        yield socket_address


@contextlib.contextmanager
def silent_connections(address: str) -> Iterator[None]:
    """More than the server can accept. It gives up those that say nothing, and meets the next ones."""
    with contextlib.ExitStack() as stack:
        for _ in range(6 * MOST):
            stack.enter_context(contextlib.closing(reach(address)))
        yield


def has_run_out(client: Any) -> bool:
    try:
        client.open_one()
    except OSError as error:
        return error.errno == errno.EMFILE
    return False


def test_f44_old_clients_are_served_while_there_are_no_descriptors_and_new_ones_afterwards(
    poor_server, connect
) -> None:
    old = connect(poor_server, call_timeout=20)
    assert [old.echo(1), old.futures.echo(2).result(10)] == [1, 2]
    answers: list[object] = []
    newcomer = threading.Thread(target=lambda: answers.append(connect(poor_server).echo("new")))

    with silent_connections(poor_server):
        until(lambda: has_run_out(old))
        newcomer.start()
        assert [old.echo(i) for i in range(200)] == [*range(200)]
        futures = [old.futures.echo(i) for i in range(200)]
        assert [future.result(10) for future in futures] == [*range(200)]
        assert has_run_out(old)
        assert answers == []
    newcomer.join(20)

    assert answers == ["new"]
    assert not has_run_out(old)


def test_sound_pass_2_a_server_without_descriptors_says_once_that_clients_wait(
    python, socket_address, connect
) -> None:
    source = SERVER.format(begin=begin_source(), address=socket_address, most=MOST)
    with python(
        source.replace("import os", "import sys; sys.stderr = sys.stdout; import os")
    ) as process:
        assert process.stdout.readline() == "up\n"
        client = connect(socket_address, call_timeout=20)
        client.echo(1)
        with silent_connections(socket_address):
            until(lambda: has_run_out(client))
        until(lambda: not has_run_out(client))
        process.kill()
        said = process.stdout.read()

    assert said.count("takes no new clients for now, and they wait: [Errno 24]") == 1
    assert "ulimit -n" in said


def test_f44_a_server_without_descriptors_does_not_spin(poor_server, connect) -> None:
    client = connect(poor_server, call_timeout=20)
    client.echo(1)

    with silent_connections(poor_server):
        until(lambda: has_run_out(client))
        before = client.cpu_s()
        threading.Event().wait(0.5)  # no order is awaited: this is the time that it could spin
        used_s = client.cpu_s() - before

    assert used_s < 0.1
