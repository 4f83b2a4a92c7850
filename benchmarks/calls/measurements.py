"""All of what is measured of calls, by name, in the order in which it is measured."""

from __future__ import annotations

from types import ModuleType

from benchmarks.calls import (
    arrays,
    broadcast,
    connecting,
    coroutines,
    crowd,
    large_futures,
    latency,
    many_to_one,
    on_ray,
    outstanding,
    overheads,
    pipelined,
    small_arrays,
    soak,
    streams,
    threads,
)

SOAK: dict[str, ModuleType] = {"soak": soak}
ON_RAY: dict[str, ModuleType] = {"on_ray": on_ray}
SPEED: dict[str, ModuleType] = {
    "latency": latency,
    "small": small_arrays,
    "pipelined": pipelined,
    "coroutines": coroutines,
    "threads": threads,
    "many_to_one": many_to_one,
    "broadcast": broadcast,
    "arrays": arrays,
    "futures": large_futures,
    "streams": streams,
    "connecting": connecting,
    "overheads": overheads,
    "outstanding": outstanding,
    "crowd": crowd,
}
