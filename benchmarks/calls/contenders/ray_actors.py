"""Ray: two actors of one node, of which one calls the other."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from benchmarks.calls.contenders.contender import Client


class Echo:
    """An actor that returns its argument."""

    def echo(self, value: Any) -> Any:
        return value


class Caller:
    """An actor that calls an Echo, another actor."""

    def __init__(self, echo: Any) -> None:
        self._echo = echo

    def measure(self, measure: Callable[..., Any], *args: Any) -> Any:
        """Run `measure(client, *args)` in this actor; return its result."""
        import ray

        def call(value: Any) -> Any:
            return ray.get(self._echo.echo.remote(value))

        def call_all(n: int) -> None:
            assert ray.get([self._echo.echo.remote(i) for i in range(n)]) == list(range(n))

        return measure(Client(call, call_all=call_all), *args)


@contextmanager
def cluster() -> Iterator[None]:
    """Start Ray on this host, and stop it at the end of the block."""
    import ray

    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    ray.init(
        "local",
        num_cpus=4,
        include_dashboard=False,
        log_to_driver=False,
        logging_level=logging.ERROR,
    )
    try:
        yield
    finally:
        ray.shutdown()


def start() -> Callable[..., Any]:
    """Start both actors; return a function that lets the caller measure."""
    import ray

    caller: Any = ray.remote(Caller).remote(ray.remote(Echo).remote())
    return lambda measure, *args: ray.get(caller.measure.remote(measure, *args))
