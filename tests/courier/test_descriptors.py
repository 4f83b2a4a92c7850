"""F44: a server that runs out of file descriptors."""

from __future__ import annotations

import threading

from tests.courier.conftest import in_background

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
