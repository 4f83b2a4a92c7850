"""Courier, as its users write it: on every carrier, and within one process."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from multiprocessing.connection import Connection
from typing import Any, NamedTuple

from benchmarks.calls.contenders.raw import Call
from benchmarks.calls.contenders.timing import (
    CallAll,
    TimeCalls,
    all_at_once,
    by_coroutines,
    one_by_one,
)
from launchpad import courier
from launchpad.courier import keyring

TCP = "tcp:127.0.0.1:0"


class Place(NamedTuple):
    """Where a server is, and what it wants to see."""

    address: str
    token: bytes = b""
    credentials: Any = None


def echo(value: Any) -> Any:
    return value


def size(array: Any) -> int:
    return int(array.nbytes)


def serve(address: str, path: str, pipe: Connection, place: Place | None = None) -> None:
    token = place.token if place else None
    server = courier.Server("echo", address=address.format(path=path), token=token)
    server.bind("echo", echo)
    server.bind("size", size)
    server.start()
    pipe.send((place or Place(""))._replace(address=server.address))
    server.join()


serve_unix = partial(serve, "unix:{path}")
serve_tcp = partial(serve, TCP)


def serve_guarded(path: str, pipe: Connection) -> None:
    """With a token; the client has a deadline for every call, too."""
    serve("unix:{path}", path, pipe, Place("", secrets.token_bytes(32)))


def serve_tls(path: str, pipe: Connection) -> None:
    from launchpad.courier.security.certificates import make_credentials

    place = Place("", secrets.token_bytes(32), make_credentials())
    keyring.add("tcp:", place.token, place.credentials)
    serve(TCP, path, pipe, place)


def serve_nothing(path: str, pipe: Connection) -> None:
    """The server is in the client's process."""
    pipe.send(Place(f"inproc:{path}"))
    pipe.recv()


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


def cannot_serve_tls() -> str:
    try:
        from launchpad.courier.security.certificates import make_credentials

        make_credentials()
    except Exception as error:
        return f"courier makes no certificates here: {error}"
    return cannot_serve(TCP)()


@contextmanager
def connected(place: Place) -> Iterator[Any]:
    """A client; its server is made here, where the address is in process."""
    with ExitStack() as stack:
        if place.address.startswith("inproc:"):
            server = courier.Server("echo", address=place.address)
            server.bind("echo", echo)
            server.start()
            stack.callback(server.stop)
        yield stack.enter_context(new_client(place))


def new_client(place: Place) -> courier.Client[Any]:
    if place.credentials is not None:
        keyring.add("tcp:", place.token, place.credentials)
    if place.token:
        return courier.Client(place.address, token=place.token, call_timeout=60.0)
    return courier.Client(place.address)


@contextmanager
def connect(place: Place) -> Iterator[Call]:
    with connected(place) as client:
        yield client.echo


@contextmanager
def connect_size(place: Place) -> Iterator[Call]:
    with connected(place) as client:
        yield client.size


@contextmanager
def connect_submit(place: Place) -> Iterator[Call]:
    with connected(place) as client:
        yield client.futures.echo


@contextmanager
def connect_one_by_one(place: Place) -> Iterator[TimeCalls]:
    with connected(place) as client:
        yield one_by_one(client.echo)


@contextmanager
def connect_all_at_once(place: Place) -> Iterator[CallAll]:
    with connected(place) as client:
        yield all_at_once(client.futures.echo)


@contextmanager
def connect_coroutines(place: Place) -> Iterator[CallAll]:
    with connected(place) as client, asyncio.Runner() as runner:
        yield lambda n: runner.run(by_coroutines(client.aio.echo, n))


@contextmanager
def connect_coroutines_of_uvloop(place: Place) -> Iterator[CallAll]:
    import uvloop

    with connected(place) as client, asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        yield lambda n: runner.run(by_coroutines(client.aio.echo, n))


@contextmanager
def connect_anew(place: Place) -> Iterator[Callable[[], Any]]:
    """What is measured is a new client's first call."""

    def set_up() -> Any:
        client = new_client(place)
        client.echo(7)
        return client

    yield set_up
