"""Where a server can be found: paths, owners, and who had the address before."""

from __future__ import annotations

import contextlib
import os
import socket
import stat
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

from launchpad import courier
from launchpad.courier import call_stack
from launchpad.courier.server import poller
from tests.courier.conftest import reach, run_python


def path_of(address: str) -> str:
    return address.removeprefix("unix:")


def test_without_an_address_a_server_has_a_private_directory(serve, connect) -> None:
    server = serve(echo=lambda value: value)

    path = Path(path_of(server.address))

    assert [stat.S_IMODE(each.stat().st_mode) for each in (path, path.parent)] == [0o600, 0o700]
    assert connect(server.address).echo(1) == 1


def test_f19_a_path_that_is_too_long_is_refused_with_the_numbers(
    serve, connect, short_directory
) -> None:
    longest = f"unix:{short_directory}/"
    longest += "s" * (107 - len(path_of(longest)))

    serve(longest, echo=lambda value: value)
    assert connect(longest).echo(1) == 1

    with pytest.raises(ValueError, match=r"108 bytes.*107 at most.*shorter directory"):
        courier.Server(address=f"{longest}s")
    with pytest.raises(ValueError, match="107 at most"):
        courier.Client(f"{longest}s")


def test_f19_a_shorter_directory_is_chosen_if_need_be(serve, short_directory, monkeypatch) -> None:
    long = short_directory / ("x" * 90)
    long.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(long))

    assert serve().address.startswith("unix:/tmp/courier-")


@pytest.mark.every_transport
def test_a_server_that_listens_is_not_replaced(serve, connect, address) -> None:
    serve(address, who=lambda: "first")

    with pytest.raises(OSError, match="another server already listens on this address"):
        serve(address, who=lambda: "second")

    assert connect(address).who() == "first"


def test_a_file_that_is_no_socket_is_never_replaced(serve, unix_address) -> None:
    file = Path(path_of(unix_address))
    file.write_text("precious")

    with pytest.raises(FileExistsError, match="no socket"):
        serve(unix_address)

    assert file.read_text() == "precious"
    assert os.listdir(file.parent) == ["s"]


@pytest.mark.parametrize("mode", [0o702, 0o720])
def test_a_directory_that_others_may_write_to_is_refused_unless_it_is_sticky_as_tmp_is(
    serve, unix_address, short_directory, mode
) -> None:
    short_directory.chmod(mode)
    with pytest.raises(PermissionError, match="others may write to it"):
        serve(unix_address)
    assert os.listdir(short_directory) == []

    short_directory.chmod(mode | stat.S_ISVTX)
    serve(unix_address)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a directory away")
def test_a_directory_of_another_user_is_refused(serve, unix_address, short_directory) -> None:
    os.chown(short_directory, 12345, -1)

    with pytest.raises(PermissionError, match="belongs to user 12345"):
        serve(unix_address)

    os.chown(short_directory, os.geteuid(), -1)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a socket away")
def test_a_token_is_shown_to_no_socket_of_another_user(serve, connect, unix_address) -> None:
    serve(unix_address, m=lambda: 1)
    os.chown(path_of(unix_address), 12345, -1)

    with pytest.raises(PermissionError, match="belongs to user 12345"):
        connect(unix_address, token=b"secret").m()


def test_a_server_takes_only_its_own_socket_away(serve, unix_address) -> None:
    path = path_of(unix_address)
    first = serve(unix_address)
    os.unlink(path)
    serve(unix_address, who=lambda: "second")

    first.stop()

    assert os.path.exists(path)


# --- a socket that is taken away -------------------------------------------------------------------


@pytest.fixture
def looks_often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(poller, "_POLL_S", 0.01)


@contextlib.contextmanager
def another_socket(path: str) -> Iterator[socket.socket]:
    """Puts a socket that does not listen yet in the place of the server's."""
    with socket.socket(socket.AF_UNIX) as thief:
        thief.bind(f"{path}.new")
        os.rename(f"{path}.new", path)
        yield thief


@pytest.mark.parametrize("is_replaced", [False, True])
def test_f17_a_socket_that_was_removed_or_replaced_is_published_again_loudly(
    serve, connect, unix_address, looks_often, caplog, is_replaced
) -> None:
    serve(unix_address, ping=lambda: "pong")
    old = connect(unix_address)
    old.ping()

    if is_replaced:
        with another_socket(path_of(unix_address)):
            pass
    else:
        os.unlink(path_of(unix_address))

    assert connect(unix_address, call_timeout=20).ping() == "pong"
    assert old.ping() == "pong"
    assert "was taken away; it is back" in caplog.text


def test_f17_a_server_that_listens_at_our_path_is_not_replaced_and_we_say_so_once(
    serve, connect, unix_address, looks_often, caplog
) -> None:
    serve(unix_address, ping=lambda: "ours")
    old = connect(unix_address)
    old.ping()
    with another_socket(path_of(unix_address)) as thief:
        thief.listen()
        while "do not find this server" not in caplog.text:
            assert old.ping() == "ours"
        for _ in range(10):
            old.ping()
        assert caplog.text.count("do not find this server") == 1
    os.unlink(path_of(unix_address))

    assert connect(unix_address, call_timeout=20).ping() == "ours"


# --- several addresses ------------------------------------------------------------------------------

ANY_PORT = "tcp:127.0.0.1:0"


def test_one_token_holds_for_all_addresses(serve, connect, unix_address, keys) -> None:
    keys("unix:", b"ours")
    keys("tcp:", b"another")
    server = serve(unix_address, also_at=[ANY_PORT], m=lambda: "here")

    assert connect(server.addresses[0]).m() == "here"
    assert connect(server.addresses[1], token=b"ours").m() == "here"
    with pytest.raises(courier.Refused, match="refused our token"):
        connect(server.addresses[1]).m()


def test_clients_come_by_unix_and_by_tls_until_a_stop(
    serve, connect, short_directory, tls_address
) -> None:
    new = f"unix:{short_directory}/new/s"
    server = serve(new, also_at=[tls_address], echo=lambda value: value)
    near, far = [connect(address) for address in server.addresses]

    assert (near.echo("near"), far.echo("far")) == ("near", "far")
    assert courier.incarnation(near) == courier.incarnation(far)
    server.stop()

    assert os.listdir(short_directory) == []
    with pytest.raises(ConnectionRefusedError):
        reach(server.addresses[1])


def test_a_taken_address_leaves_nothing_at_others(
    serve, connect, short_directory, tcp_address
) -> None:
    first = f"unix:{short_directory}/new/s"
    holder = serve(tcp_address, m=lambda: "holder")
    server = courier.Server(address=first, also_at=[ANY_PORT, tcp_address])
    server.bind("m", lambda: "here")

    with pytest.raises(OSError, match="another server"):
        server.start()

    assert os.listdir(short_directory) == []
    assert server.addresses == [first, ANY_PORT, tcp_address]
    holder.stop()
    server.start()  # it may try again
    assert [connect(address).m() for address in server.addresses] == ["here"] * 3
    server.stop()


def test_the_first_address_taken_leaves_nothing_at_others(
    serve, inproc_address, unix_address
) -> None:
    serve(inproc_address)
    server = courier.Server(address=inproc_address, also_at=[unix_address, ANY_PORT])

    with pytest.raises(OSError, match="another server"):
        server.start()

    assert not os.path.exists(path_of(unix_address))
    assert server.addresses == [inproc_address, unix_address, ANY_PORT]


@pytest.mark.parametrize(
    ("also_at", "complaint"),
    [
        (ANY_PORT, "a list of addresses"),
        (["tcp:nowhere"], "tcp:HOST:PORT"),
        (["grpc:nowhere"], "grpc:HOST:PORT"),
        (["unix:relative"], "unix:/absolute/path"),
        (["inproc:x"], "only the first one can be"),
        (["http://x"], "no address of a courier server"),
    ],
)
def test_another_address_that_cannot_be_is_refused_where_it_is_written(also_at, complaint) -> None:
    with pytest.raises(ValueError, match=complaint):
        courier.Server(also_at=also_at)


def test_f30_waits_for_a_server_are_known_by_all_its_addresses(
    serve, connect, unix_address
) -> None:
    elsewhere = SimpleNamespace(address="unix:/elsewhere", label="B")

    def f() -> list[call_stack.Edge]:
        with call_stack.waiting_for(elsewhere, b"g"):
            return call_stack.edges()

    server = serve(unix_address, also_at=[ANY_PORT], name="A", f=f)

    edges = connect(server.addresses[1]).f()

    waits_for = ("unix:/elsewhere", "g"), "A", "B"
    assert edges == [((address, "f"), *waits_for) for address in server.addresses]


FRESH_SERVER = """
import signal, tempfile
from launchpad import courier
tempfile.tempdir = {folder!r}
server = courier.Server("killed")
server.start()
print(server.address, flush=True)
signal.pause()
"""


def test_sound_33_what_a_killed_server_left_is_removed(
    serve, connect, short_directory: Path
) -> None:
    running = serve(ping=lambda: 1)
    folder = Path(path_of(running.address)).parent.parent
    with run_python(FRESH_SERVER.format(folder=str(folder))) as process:
        assert process.stdout is not None
        killed = Path(path_of(process.stdout.readline().strip())).parent
        process.kill()
    begun, abandoned = folder / f"courier-{'1' * 12}", folder / f"courier-{'2' * 12}"
    theirs, named = folder / f"courier-{'3' * 12}", folder / "courier-of-mine"
    for directory in (begun, abandoned, named):
        directory.mkdir(mode=0o700)
    theirs.symlink_to(named)
    os.utime(abandoned, (0, 0))
    assert killed.exists()

    serve()

    assert [d.exists() for d in (killed, abandoned, begun, named, theirs)] == [0, 0, 1, 1, 1]
    assert connect(running.address).ping() == 1
    for directory in (begun, named):
        directory.rmdir()
    theirs.unlink()
