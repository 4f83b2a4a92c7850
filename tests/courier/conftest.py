"""Servers and clients that are gone when the test is, and what else the courier tests share."""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Awaitable, Callable, Iterator, Sequence
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import psutil
import pytest

from launchpad import courier
from launchpad.courier import keyring
from launchpad.courier.protocol import framing
from launchpad.courier.security import certificates
from launchpad.courier.server.one_thread import OneThread
from tests.helpers.large_arrays import Methods
from tests.waiting import until

REPOSITORY = Path(__file__).parent.parent.parent
DEADLINE_S = 20.0
TRANSPORTS = ["unix", "inproc", "tcp", "tls"]
OTHERS = os.environ.get("LP_TRANSPORTS", "unix").split(",")
CREDENTIALS = certificates.make_credentials()

ECHO_SERVER = """
{begin}
import os, threading
server = courier.Server("victim", address={address!r})
server.bind("echo", lambda value: value)
server.bind("pid", os.getpid)
server.bind("pids", lambda: iter([os.getpid()]))
hanging = []
server.bind("hang", lambda: hanging.append(1) or threading.Event().wait())
server.bind("n_hanging", lambda: len(hanging))
server.start()
print("up", flush=True)
server.join()
"""


@pytest.fixture(autouse=True)
def no_directory_outlives_its_test(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Beyond what holds for every test: no socket, and no directory made for one, is left."""
    with tempfile.TemporaryDirectory(prefix="lpt-", dir="/tmp") as own:
        monkeypatch.setattr(tempfile, "tempdir", own)
        yield
        assert [name for name in os.listdir(own) if name.startswith("courier-")] == []


@pytest.fixture
def short_directory() -> Iterator[Path]:
    """A private directory whose name is short enough for sockets."""
    with tempfile.TemporaryDirectory(prefix="lpt-", dir="/tmp") as name:
        yield Path(name)


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    given = [mark.args[0] for mark in metafunc.definition.iter_markers("parametrize")]
    if "address" in metafunc.fixturenames and "address" not in str(given):
        is_of_transports = metafunc.definition.get_closest_marker("every_transport") is not None
        metafunc.parametrize("address", TRANSPORTS if is_of_transports else OTHERS, indirect=True)


@pytest.fixture
def address(request: pytest.FixtureRequest) -> str:
    """An address for each transport in tests marked `every_transport`, of a Unix socket in all others.

    The former are what a transport has to do. The latter are of what is built on it, whichever that is:
    LP_TRANSPORTS=unix,inproc,tcp,tls runs them on each.
    """
    found: str = request.getfixturevalue(f"{request.param}_address")
    return found


@pytest.fixture(params=["unix", "tcp", "tls"])
def socket_address(request: pytest.FixtureRequest) -> str:
    """An address for each carrier that has sockets."""
    found: str = request.getfixturevalue(f"{request.param}_address")
    return found


@pytest.fixture
def unix_address(short_directory: Path) -> str:
    return f"unix:{short_directory}/s"


@pytest.fixture
def inproc_address(short_directory: Path) -> str:
    return f"inproc:{short_directory}/s"


@contextlib.contextmanager
def reserve_port() -> Iterator[str]:
    """An address that nobody else gets meanwhile, because a socket that does not listen has it."""
    with socket.socket() as holder:
        holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        holder.bind(("127.0.0.1", 0))
        yield f"tcp:127.0.0.1:{holder.getsockname()[1]}"


@pytest.fixture
def tcp_address() -> Iterator[str]:
    with reserve_port() as found:
        yield found


@pytest.fixture
def other_address(address: str) -> Iterator[str]:
    """A second address of the same carrier."""
    if address.startswith("tcp:"):
        with reserve_port() as found:
            yield found
    else:
        yield f"{address}-2"


@pytest.fixture
def tls_address(tcp_address: str) -> Iterator[str]:
    """This process has credentials for every address `tcp:…`, and so have servers that it spawns."""
    keyring.add("tcp:", b"", CREDENTIALS)
    yield tcp_address
    keyring.remove("tcp:")


Serve = Callable[..., courier.Server]
Connect = Callable[..., "courier.Client[Any]"]


@pytest.fixture
def serve(short_directory: Path) -> Iterator[Serve]:
    """Starts servers: `serve(address, name=function, …)`. They are stopped after the test.

    The directory outlives them: a server whose socket is removed puts it back.
    """
    with contextlib.ExitStack() as stack:

        def start(
            address: str | None = None,
            *,
            name: str = "server",
            token: bytes | None = None,
            size: int = 16,
            also_at: Sequence[str] = (),
            max_bytes: int = framing.MAX_BYTES,
            one_thread: OneThread | None = None,
            **methods: Callable[..., Any],
        ) -> courier.Server:
            server = courier.Server(
                name,
                address=address,
                token=token,
                thread_pool_size=size,
                also_at=also_at,
                max_bytes=max_bytes,
                one_thread=one_thread,
            )
            for method, fn in methods.items():
                server.bind(method, fn)
            server.start()
            stack.callback(server.stop, 0.2)
            return server

        yield start


@pytest.fixture
def connect() -> Iterator[Connect]:
    """Makes clients, closed after the test (before the servers are stopped)."""
    with contextlib.ExitStack() as stack:

        def open_client(address: str, **options: Any) -> courier.Client[Any]:
            return stack.enter_context(courier.Client(address, **options))

        yield open_client


ClientOf = Callable[..., "courier.Client[Any]"]


def _client_at(address: str, serve: Serve, connect: Connect) -> ClientOf:
    def start(*, call_timeout: float | None = None, **methods: Any) -> courier.Client[Any]:
        serve(address, **methods)
        return connect(address, call_timeout=call_timeout)

    return start


@pytest.fixture
def client_of(address: str, serve: Serve, connect: Connect) -> ClientOf:
    """A client of a server at `address`: `client_of(name=function, …)`; also with a `call_timeout`."""
    return _client_at(address, serve, connect)


@pytest.fixture
def unix_client_of(unix_address: str, serve: Serve, connect: Connect) -> ClientOf:
    return _client_at(unix_address, serve, connect)


@pytest.fixture
def socket_client_of(socket_address: str, serve: Serve, connect: Connect) -> ClientOf:
    return _client_at(socket_address, serve, connect)


class Gate(threading.Event):
    """An event for methods to wait on; `begun` is set when the first one does."""

    def __init__(self) -> None:
        super().__init__()
        self.begun = threading.Event()

    def wait(self, timeout: float | None = None) -> bool:
        self.begun.set()
        return super().wait(timeout)


@pytest.fixture
def methods() -> Iterator[Methods]:
    """Methods for large arrays."""
    methods = Methods()
    yield methods
    methods.open()
    methods.forget()


@pytest.fixture
def client(
    methods: Methods, serve: Serve, connect: Connect, unix_address: str
) -> courier.Client[Any]:
    """A client of a server of these methods, in this process."""
    serve(unix_address).bind_object(methods)
    return connect(unix_address)


@pytest.fixture
def gate() -> Iterator[Gate]:
    """Set at the latest when the test ends."""
    event = Gate()
    yield event
    event.set()


def in_background(call: Callable[..., Any], *args: Any) -> Future[Any]:
    """What `call(*args)` returns or raises, on a thread of its own."""
    future: Future[Any] = Future()

    def run() -> None:
        try:
            future.set_result(call(*args))
        except BaseException as error:
            future.set_exception(error)

    threading.Thread(target=run, daemon=True).start()
    return future


async def awaited(call: Awaitable[Any]) -> Any:
    """`asyncio.run` takes coroutines only."""
    return await call


def exit_code_of_child(run: Callable[[], int]) -> int:
    """Forks; the child ends with what `run()` returns, or with 255 where that fails."""
    pid = os.fork()
    if not pid:
        try:
            os._exit(run())
        finally:
            os._exit(255)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def begin_source() -> str:
    """How a Python process begins that imports courier from here, and belongs to the same run."""
    found = keyring.find_credentials("tcp:")
    source = f"import sys; sys.path.insert(0, {str(REPOSITORY)!r})\n"
    source += "from launchpad import courier\n"
    if found is not None:
        source += "from launchpad.courier.security import keyring\n"
        pems = (found.ca_pem, found.cert_pem, found.key_pem)
        source += f"keyring.add('tcp:', b'', keyring.Credentials(*{pems!r}))\n"
    return source


def reach(address: str) -> socket.socket:
    """A connection of somebody who knows nothing of courier or TLS."""
    if address.startswith("unix:"):
        sock = socket.socket(socket.AF_UNIX)
        sock.settimeout(10)
        sock.connect(address.removeprefix("unix:"))
        return sock
    _, host, port = address.split(":")
    return socket.create_connection((host, int(port)), 10)


@pytest.fixture
def spawn_server() -> Iterator[Callable[..., subprocess.Popen[str]]]:
    """Starts a server (echo, pid, pids, hang, n_hanging) in its own process; returns when it is up."""
    with contextlib.ExitStack() as stack:

        def spawn(address: str, server: str = ECHO_SERVER) -> subprocess.Popen[str]:
            source = server.format(begin=begin_source(), address=address)
            process = stack.enter_context(run_python(source))
            assert process.stdout is not None
            assert process.stdout.readline() == "up\n"
            return process

        yield spawn


def kill(server: subprocess.Popen[str], address: str) -> None:
    """Kills a server, and waits until this process has heard that its connections to it have ended.

    Over TCP that comes a moment after the death. Who calls in between sends to a server that has gone.
    """
    port = address.rpartition(":")[2]
    this_process = psutil.Process()

    def is_connected() -> bool:
        connections = this_process.net_connections("tcp")
        open_ones = (c for c in connections if c.status == psutil.CONN_ESTABLISHED)
        return any(str(c.raddr.port) == port for c in open_ones)

    server.kill()
    server.wait(10)
    until(lambda: not is_connected())


@contextlib.contextmanager
def run_python(source: str) -> Iterator[subprocess.Popen[str]]:
    """A Python process that runs `source`; killed when the block ends."""
    with subprocess.Popen(
        [sys.executable, "-c", source], stdout=subprocess.PIPE, stdin=subprocess.PIPE, text=True
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def printed_by(source: str) -> str:
    """What a Python process prints that runs `source` and ends well."""
    with run_python(source) as process:
        output, _ = process.communicate(timeout=60)
    assert process.returncode == 0
    return output


@pytest.fixture
def python() -> Callable[[str], contextlib.AbstractContextManager[subprocess.Popen[str]]]:
    return run_python


@pytest.fixture
def keys() -> Iterator[Callable[..., None]]:
    """Adds tokens, or credentials as well, to the keyring for the time of the test."""
    with contextlib.ExitStack() as stack:

        def add(prefix: str, token: bytes, credentials: keyring.Credentials | None = None) -> None:
            keyring.add(prefix, token, credentials)
            stack.callback(keyring.remove, prefix)

        yield add
