"""F44: servers and clients that run out of file descriptors."""

from __future__ import annotations

import threading

from tests.courier.conftest import begin_source, in_background, printed_by

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


def test_f44_a_server_without_descriptors_serves_old_clients_and_says_so_once_and_does_not_spin(
    spawn_server, connect, socket_address
) -> None:
    poor_server = spawn_server(socket_address, SERVER)
    old = connect(socket_address, call_timeout=20)
    assert [old.echo(1), old.futures.echo(2).result(10)] == [1, 2]

    old.exhaust()
    newcomer = in_background(connect(socket_address).echo, "new")
    said = poor_server.stdout.readline()
    assert [old.echo(i) for i in range(200)] == [*range(200)]
    futures = [old.futures.echo(i) for i in range(200)]
    assert [future.result(10) for future in futures] == [*range(200)]
    before = old.cpu_s()
    threading.Event().wait(0.5)  # no order is awaited: this is the time that it could spin
    used_s = old.cpu_s() - before
    assert not newcomer.done()
    old.release()
    assert newcomer.result(20) == "new"
    poor_server.kill()

    assert "takes no new clients for now, and they wait: [Errno 24]" in said
    assert "ulimit -n" in said
    assert used_s < 0.1
    assert poor_server.stdout.read() == ""


SERVER_OF_CLIENT = """{begin}
server = courier.Server("rich", address={address!r})
server.bind("echo", lambda value: value)
server.bind("count", lambda value: iter([value]))
server.bind("join", "-".join)
server.start()
print("up", flush=True)
server.join()
"""

CLIENT = """{begin}
import asyncio, contextlib, resource, time
hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
resource.setrlimit(resource.RLIMIT_NOFILE, (80, hard))

async def echo_on_a_loop(client):
    return await client.aio.echo("awaited")

calls = [
    lambda client: client.echo("call"),
    lambda client: client.futures.echo("future").result(20),
    lambda client: client.futures.echo(bytearray(1 << 20)).result(20)[:0] + b"shared",
    lambda client: next(client.count("stream")),
    lambda client: next(client.futures.count("fetched").result(20)),
    lambda client: client.join(each for each in ["an", "argument"]),
    lambda client: client.futures.join(each for each in ["an", "argument"]).result(20),
]
def try_all(client):
    for call in calls:
        try:
            yield call(client)
        except courier.NotSent as error:
            yield "ulimit -n" in str(error)

# Modules that are imported when they are used need descriptors as well.
first = courier.Client({address!r})
print(*try_all(first))
courier.close(first)
old = courier.Client({address!r})
old.echo(0), old.futures.echo(0).result(20)
new = courier.Client({address!r})
files = []
with contextlib.suppress(OSError):
    while True:
        files.append(open("/dev/null"))
began = time.monotonic()
print(*try_all(new))
print(old.echo("call"))
taken = old.count("taken")
print(*try_all(old))
print(time.monotonic() - began < 5)
files.clear()
print(*try_all(new))
"""


def test_calls_without_a_descriptor_for_a_connection_fail_at_once_and_are_made_when_there_is_one(
    spawn_server, socket_address
) -> None:
    spawn_server(socket_address, SERVER_OF_CLIENT)

    lines = printed_by(CLIENT.format(begin=begin_source(), address=socket_address)).splitlines()

    all_made = "call future bytearray(b'shared') stream fetched an-argument an-argument"
    of_the_connected = "True future bytearray(b'shared') True True True True"
    assert lines == [all_made, " ".join(["True"] * 7), "call", of_the_connected, "True", all_made]
