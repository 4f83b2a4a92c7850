"""Courier, as its users write it: on every carrier, and within one process."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from multiprocessing.connection import Connection
from typing import Any

from benchmarks.calls.contenders.raw import Call
from benchmarks.calls.contenders.timing import CallAll, TimeCalls, all_at_once, one_by_one
from launchpad import courier


def echo(value: Any) -> Any:
    return value


def serve(address: str, path: str, pipe: Connection) -> None:
    server = courier.Server("echo", address=address.format(path=path))
    server.bind("echo", echo)
    server.start()
    pipe.send(server.address)
    server.join()


serve_unix = partial(serve, "unix:{path}")
serve_tcp = partial(serve, "tcp:127.0.0.1:0")


def cannot_serve(address: str) -> Callable[[], str]:
    """A reason to be skipped, where a server refuses such an address."""

    def why_not() -> str:
        try:
            server = courier.Server("probe", address=address)
            server.start()
        except Exception as error:
            return f"courier.Server(address={address!r}) says: {str(error).splitlines()[0]}"
        server.stop()
        return ""

    return why_not


def serve_nothing(path: str, pipe: Connection) -> None:
    """The server is in the client's process."""
    pipe.send(f"inproc:{path}")
    pipe.recv()


@contextmanager
def connected(address: str) -> Iterator[courier.Client[Any]]:
    """A client; its server is made here, where the address is in process."""
    with ExitStack() as stack:
        if address.startswith("inproc:"):
            server = courier.Server("echo", address=address)
            server.bind("echo", echo)
            server.start()
            stack.callback(server.stop)
        yield stack.enter_context(courier.Client(address))


@contextmanager
def connect(address: str) -> Iterator[Call]:
    with connected(address) as client:
        yield client.echo


@contextmanager
def connect_one_by_one(address: str) -> Iterator[TimeCalls]:
    with connected(address) as client:
        yield one_by_one(client.echo)


@contextmanager
def connect_all_at_once(address: str) -> Iterator[CallAll]:
    with connected(address) as client:
        yield all_at_once(client.futures.echo)
