"""Courier, as its users write it: on every carrier, and within one process."""

from __future__ import annotations

import asyncio
import functools
import secrets
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from multiprocessing.connection import Connection
from typing import Any, NamedTuple

from benchmarks.calls.contenders.contender import Client, Contender, by_coroutines
from launchpad import courier
from launchpad.courier import keyring

TCP = "tcp:127.0.0.1:0"


class Place(NamedTuple):
    """The address of a server, and the secrets that it wants to see."""

    address: str
    token: bytes = b""
    credentials: Any = None


def echo(value: Any) -> Any:
    return value


def size(array: Any) -> int:
    return int(array.nbytes)


@functools.cache
def ones(n_bytes: int) -> Any:
    """Return an array of that size, always the same one, so that a call measures only how it is sent."""
    import numpy as np

    return np.ones(n_bytes // 4, dtype=np.float32)


def serve(address: str, path: str, pipe: Connection, place: Place | None = None) -> None:
    token = place.token if place else None
    server = courier.Server("echo", address=address.format(path=path), token=token)
    server.bind("echo", echo)
    server.bind("size", size)
    server.bind("ones", ones)
    server.start()
    pipe.send((place or Place(""))._replace(address=server.address))
    server.join()


serve_unix = partial(serve, "unix:{path}")
serve_tcp = partial(serve, TCP)


def serve_guarded(path: str, pipe: Connection) -> None:
    """Serve with a token. Its client also has a deadline for every call."""
    serve("unix:{path}", path, pipe, Place("", secrets.token_bytes(32)))


def serve_tls(path: str, pipe: Connection) -> None:
    from launchpad.courier.security.certificates import make_credentials

    place = Place("", secrets.token_bytes(32), make_credentials())
    keyring.add("tcp:", place.token, place.credentials)
    serve(TCP, path, pipe, place)


def serve_nothing(path: str, pipe: Connection) -> None:
    """Serve nothing, because the client makes the server in its own process."""
    pipe.send(Place(f"inproc:{path}"))
    pipe.recv()


@contextmanager
def connected(place: Place) -> Iterator[Any]:
    """Give a connected client. For an in-process address, make its server here, too."""
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
def connect(place: Place) -> Iterator[Client]:
    with connected(place) as client, asyncio.Runner() as runner:
        yield Client(
            client.echo,
            client.futures.echo,
            await_all=lambda n: runner.run(by_coroutines(client.aio.echo, n)),
        )


@contextmanager
def connect_size(place: Place) -> Iterator[Client]:
    """Give a client that calls a method which returns the size of an array, not the array."""
    with connected(place) as client:
        yield Client(client.size)


UNIX = Contender("courier", serve_unix, connect)
GUARDED = Contender("courier guarded", serve_guarded, connect)
OVER_TCP = Contender("courier tcp", serve_tcp, connect)
OVER_TLS = Contender("courier tls", serve_tls, connect)
IN_PROCESS = Contender("courier in-process", serve_nothing, connect)
