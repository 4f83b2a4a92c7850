"""A Ray actor with one method, on a cluster of this host's own. Measured where ray is installed."""

from __future__ import annotations

import logging
import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing.connection import Connection
from typing import Any, NamedTuple

from benchmarks.calls.contenders.timing import CallAll, TimeCalls, one_by_one

QUIETLY: dict[str, Any] = {
    "namespace": "bench",
    "log_to_driver": False,
    "logging_level": logging.ERROR,
}


class Place(NamedTuple):
    """Where the cluster is, and what it wants to see."""

    address: str
    token: str


def serve(_: str, pipe: Connection) -> None:
    token = secrets.token_hex(32)
    show(token)
    import ray

    context = ray.init(num_cpus=2, include_dashboard=False, **QUIETLY)
    actor = ray.remote(Echo).options(name="echo").remote()
    ray.get(actor.echo.remote(0))
    pipe.send(Place(context.address_info["gcs_address"], token))
    pipe.recv()


def show(token: str) -> None:
    """Ray reads it when it is imported. Without one it would write its own into the home directory."""
    os.environ |= {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": token}


class Echo:
    def echo(self, value: Any) -> Any:
        return value


@contextmanager
def connected(place: Place) -> Iterator[Any]:
    show(place.token)
    import ray

    ray.init(place.address, **QUIETLY)
    yield ray.get_actor("echo")


@contextmanager
def connect_one_by_one(place: Place) -> Iterator[TimeCalls]:
    with connected(place) as actor:
        import ray

        yield one_by_one(lambda value: ray.get(actor.echo.remote(value)))


@contextmanager
def connect_all_at_once(place: Place) -> Iterator[CallAll]:
    with connected(place) as actor:
        import ray

        def call_all(n: int) -> None:
            assert ray.get([actor.echo.remote(i) for i in range(n)]) == list(range(n))

        yield call_all
