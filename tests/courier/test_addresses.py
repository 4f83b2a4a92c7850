"""Where a server can be found: paths, owners, and who had the address before."""

from __future__ import annotations

import os
import socket
import stat

import pytest

from launchpad import courier
from launchpad.courier.carriers import sockets
from launchpad.courier.servers import poller


def path_of(address: str) -> str:
    return address.removeprefix("unix:")


def test_the_socket_is_private(serve, unix_address) -> None:
    serve(unix_address)

    assert stat.S_IMODE(os.stat(path_of(unix_address)).st_mode) == 0o600


def test_without_an_address_a_server_has_a_private_directory_of_its_own(serve, connect) -> None:
    server = serve(echo=lambda value: value)

    directory = os.path.dirname(path_of(server.address))

    assert stat.S_IMODE(os.stat(directory).st_mode) == 0o700
    assert connect(server.address).echo(1) == 1


def test_f19_a_path_that_is_too_long_is_refused_with_the_numbers() -> None:
    path = "/tmp/" + "x" * 120

    with pytest.raises(ValueError, match=r"125 bytes.*107 at most.*shorter directory"):
        courier.Server(address=f"unix:{path}")
    with pytest.raises(ValueError, match="107 at most"):
        courier.Client(f"unix:{path}")


def test_f19_a_shorter_directory_is_chosen_where_the_temporary_one_is_too_long(
    serve, connect, short_directory, monkeypatch
) -> None:
    long = short_directory / ("x" * 90)
    long.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(long))

    server = serve(echo=lambda value: value)

    assert server.address.startswith("unix:/tmp/courier-")
    assert connect(server.address).echo(1) == 1


@pytest.mark.parametrize("length", [100, 107])
def test_paths_up_to_the_limit_work(serve, connect, short_directory, length) -> None:
    path = f"{short_directory}/"
    path += "s" * (length - len(path))

    serve(f"unix:{path}", echo=lambda value: value)

    assert connect(f"unix:{path}").echo(1) == 1


def test_a_living_server_is_not_replaced(serve, connect, address) -> None:
    serve(address, who=lambda: "first")

    with pytest.raises(OSError, match="a living server has this address"):
        serve(address, who=lambda: "second")

    assert connect(address).who() == "first"


def test_f18_what_a_dead_server_left_is_replaced(serve, connect, unix_address) -> None:
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(path_of(unix_address))

    serve(unix_address, who=lambda: "second")

    assert connect(unix_address).who() == "second"


def test_a_file_that_is_no_socket_is_never_replaced(serve, unix_address) -> None:
    with open(path_of(unix_address), "w") as file:
        file.write("precious")

    with pytest.raises(FileExistsError, match="no socket"):
        serve(unix_address)

    with open(path_of(unix_address)) as file:
        assert file.read() == "precious"
    assert os.listdir(os.path.dirname(path_of(unix_address))) == ["s"]


@pytest.mark.parametrize("mode", [0o777, 0o770, 0o720])
def test_a_directory_that_others_may_write_to_is_refused(
    serve, unix_address, short_directory, mode
) -> None:
    short_directory.chmod(mode)

    with pytest.raises(PermissionError, match="others may write to it"):
        serve(unix_address)

    assert os.listdir(short_directory) == []


def test_a_sticky_directory_is_accepted_as_tmp_is(serve, unix_address, short_directory) -> None:
    short_directory.chmod(0o1777)

    serve(unix_address)

    assert os.path.exists(path_of(unix_address))


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a directory away")
def test_a_directory_of_somebody_else_is_refused(serve, unix_address, short_directory) -> None:
    os.chown(short_directory, 12345, -1)

    with pytest.raises(PermissionError, match="belongs to user 12345"):
        serve(unix_address)

    os.chown(short_directory, os.geteuid(), -1)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a socket away")
def test_a_client_shows_its_token_to_no_socket_of_somebody_else(
    serve, connect, unix_address
) -> None:
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


def test_the_directory_of_an_address_is_made_if_need_be(serve, connect, short_directory) -> None:
    address = f"unix:{short_directory}/new/s"

    server = serve(address, echo=lambda value: value)
    answer = connect(address).echo(1)
    server.stop()

    assert answer == 1
    assert not os.path.exists(short_directory / "new")


def test_skipping_what_was_sent_counts_across_pieces() -> None:
    rest = [memoryview(b"abc"), memoryview(b"de"), memoryview(b"fgh")]

    sockets.skip_sent(rest, 6)

    assert [bytes(piece) for piece in rest] == [b"gh"]


# --- a socket that is taken away -------------------------------------------------------------------


@pytest.fixture
def looks_often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(poller, "_LOOK_S", 0.01)


def test_f17_a_socket_that_was_removed_is_published_again_loudly(
    serve, connect, unix_address, looks_often, caplog
) -> None:
    serve(unix_address, ping=lambda: "pong")
    old = connect(unix_address)
    old.ping()

    os.unlink(unix_address.removeprefix("unix:"))

    assert connect(unix_address, call_timeout=20).ping() == "pong"
    assert old.ping() == "pong"
    assert "was taken away; it is back" in caplog.text


def test_f17_a_socket_that_was_replaced_is_published_again(
    serve, connect, unix_address, looks_often
) -> None:
    serve(unix_address, ping=lambda: "pong")
    path = unix_address.removeprefix("unix:")
    with socket.socket(socket.AF_UNIX) as thief:
        thief.bind(f"{path}.new")
        os.rename(f"{path}.new", path)

    assert connect(unix_address, call_timeout=20).ping() == "pong"


def test_f17_a_living_server_at_our_path_is_not_replaced_and_we_say_so_once(
    serve, connect, unix_address, looks_often, caplog
) -> None:
    serve(unix_address, ping=lambda: "ours")
    old = connect(unix_address)
    old.ping()
    path = unix_address.removeprefix("unix:")
    with socket.socket(socket.AF_UNIX) as thief:
        thief.bind(f"{path}.new")
        thief.listen()
        os.rename(f"{path}.new", path)
        while "do not find this server" not in caplog.text:
            assert old.ping() == "ours"
        for _ in range(10):
            old.ping()
        assert caplog.text.count("do not find this server") == 1
    os.unlink(path)

    assert connect(unix_address, call_timeout=20).ping() == "ours"
