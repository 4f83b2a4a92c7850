"""A Ray actor with one method, on a cluster of this host's own. Measured where ray is installed."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing.connection import Connection
from typing import Any

from benchmarks.calls.contenders.timing import CallAll, TimeCalls, one_by_one


def serve(_: str, pipe: Connection) -> None:
    import ray

    context = ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False, namespace="bench")
    actor = ray.remote(Echo).options(name="echo").remote()
    ray.get(actor.echo.remote(0))
    pipe.send(context.address_info["gcs_address"])
    pipe.recv()


class Echo:
    def echo(self, value: Any) -> Any:
        return value


@contextmanager
def connected(address: str) -> Iterator[Any]:
    import ray

    ray.init(address, namespace="bench", log_to_driver=False)
    yield ray.get_actor("echo")


@contextmanager
def connect_one_by_one(address: str) -> Iterator[TimeCalls]:
    import ray

    with connected(address) as actor:
        yield one_by_one(lambda value: ray.get(actor.echo.remote(value)))


@contextmanager
def connect_all_at_once(address: str) -> Iterator[CallAll]:
    import ray

    def call_all(n: int) -> None:
        assert ray.get([actor.echo.remote(i) for i in range(n)]) == list(range(n))

    with connected(address) as actor:
        yield call_all
