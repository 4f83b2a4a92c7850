"""Arrays of float32, there and back: GB/s, the bytes of both ways by the time.

The peak of memory is that of both processes together, less their memory before the calls. It is for
two echoes of 256 MB in new processes, and counted in arrays of that size. Three is the least possible:
the argument, the server's copy of it, and the result.
"""

from __future__ import annotations

import statistics
import time
from dataclasses import replace
from typing import Any

from benchmarks.calls.contenders import grpcio_generic, ours, raw_arrays, zeromq
from benchmarks.calls.contenders.contender import Client
from benchmarks.calls.pairs import Options, Pair, take_turns, take_turns_once, unpinned
from benchmarks.harness import holdings
from benchmarks.harness.figures import Table, spread, summary

KB = 10**3
MB = 10**6
SIZES = {
    "1 kB": KB,
    "16 kB": 16 * KB,
    "128 kB": 128 * KB,
    "1 MB": MB,
    "16 MB": 16 * MB,
    "256 MB": 256 * MB,
    "1 GiB": 2**30,
}
WEIGHED = "256 MB"
LARGEST = "1 GiB"
NOT_WEIGHED = ("memcpy", "raw tcp", "courier tls", "courier in-process")
LEAST = 3  # the least possible number of arrays in both processes at once
SECONDS = 0.1  # for each size; COUNTED echoes if these take longer
UNCOUNTED = 2  # echoes: during the first ones the system has to find the memory
COUNTED = 3
CONTENDERS = [
    raw_arrays.MEMCPY,
    raw_arrays.UNIX,
    replace(raw_arrays.TCP, share=1 / 4),
    ours.UNIX,
    ours.OVER_TCP,
    replace(ours.OVER_TLS, share=1 / 64),
    replace(ours.IN_PROCESS, share=1 / 4),
    zeromq.ARRAYS,
    # gRPC has 0.3 GB/s: larger arrays take too long. That's why others have a share, too.
    replace(grpcio_generic.GRPCIO, share=1 / 64),
]


def measure(options: Options) -> dict[str, Any]:
    few = max(1, options.rounds * 3 // 5)  # these rounds take long
    rates = rates_at([*SIZES][: options.amount(-1, 4)], few, options)
    if not options.quick:
        for name, row in rates_at([LARGEST], 1, options).items():
            rates[name] |= row
    return {
        "GB_per_s": rates,
        "peak_in_arrays": weigh(options.amount(SIZES[WEIGHED], MB)),
        "one_gib_argument": send_one_gib(options.amount(SIZES[LARGEST], MB)),
    }


def rates_at(sizes: list[str], rounds: int, options: Options) -> dict[str, Any]:
    seconds = options.amount(SECONDS, 0.0)

    def one_turn(pair: Pair) -> dict[str, float]:
        most = SIZES[LARGEST] * pair.contender.share  # a share is of the largest size here
        fitting = [name for name in sizes if SIZES[name] <= most]
        return {name: pair.measure(gb_per_s, SIZES[name], seconds) for name in fitting}

    (by_name,) = take_turns(CONTENDERS, unpinned(), rounds, one_turn).values()
    return {name: summary(turns) for name, turns in by_name.items()}


def gb_per_s(client: Client, size: int, seconds: float) -> float:
    import numpy as np

    array = np.full(size // 4, 1.5, dtype=np.float32)
    array[::1000] = np.arange(len(array[::1000]))
    echo = client.call
    for _ in range(UNCOUNTED):
        assert np.array_equal(echo(array)[::1000], array[::1000])
    times: list[float] = []
    while sum(times) < seconds or len(times) < COUNTED:
        began = time.perf_counter()
        result = echo(array)
        times.append(time.perf_counter() - began)
        del result
    return 2 * array.nbytes / statistics.median(times) / 1e9


def weigh(size: int) -> dict[str, Any]:
    """Return the memory that two echoes need, each contender in new processes."""
    weights: dict[str, Any] = {}
    for contender in CONTENDERS:
        if contender.name not in NOT_WEIGHED:
            weights |= take_turns_once([contender], lambda pair: weigh_one(pair, size))
    return weights


def weigh_one(pair: Pair, size: int) -> dict[str, float]:
    pair.measure(gb_per_s, 4 * KB, 0.0)  # imports, connects
    pids = [pair.client.pid, pair.server.pid]
    before = [holdings.resident(pid) for pid in pids]
    with holdings.Peak(pids) as peak:
        pair.measure(echo_twice, size)
    sizes_before = zip(pids, before, strict=True)
    peaks = [holdings.resident_peak(pid) - resident for pid, resident in sizes_before]
    return {
        "both": peak.growth / size,
        "to_least": peak.growth / size / LEAST,
        "client_resident": peaks[0] / size,
        "server_resident": peaks[1] / size,
    }


def echo_twice(client: Client, size: int) -> None:
    import numpy as np

    array = np.ones(size // 4, dtype=np.float32)
    for _ in range(2):
        assert len(client.call(array)) == len(array)


def send_one_gib(size: int) -> dict[str, Any]:
    """Return the seconds of a call with an argument of 1 GiB, whose result is only its size."""
    contenders = [
        replace(contender, connect=ours.connect_size) for contender in (ours.UNIX, ours.OVER_TCP)
    ]
    return take_turns_once(contenders, lambda pair: pair.measure(seconds_to_send, size))


def seconds_to_send(client: Client, size: int) -> dict[str, Any]:
    import numpy as np

    array = np.ones(size // 4, dtype=np.float32)
    times = []
    for _ in range(3):
        began = time.perf_counter()
        assert client.call(array) == array.nbytes
        times.append(time.perf_counter() - began)
    return {"first_s": times[0], "next_s": spread(times[1:])}


def show(report: dict[str, Any]) -> None:
    rates = report["GB_per_s"]
    sizes = [size for size in SIZES if size in rates["raw unix"]]
    print()
    table = Table("GB/s", dict.fromkeys(sizes, ".2f"))
    for name, row in rates.items():
        table.row(name, *(row.get(size) for size in sizes))
    print()
    heads = ("both", "to least", "VmHWM: client", "server")
    table = Table("peak, in arrays", dict.fromkeys(heads, ".2f"))
    for name, row in report["peak_in_arrays"].items():
        table.row(name, *row.values())
    print()
    table = Table("1 GiB argument", {"s": ".2f", "the first": ".2f"})
    for name, row in report["one_gib_argument"].items():
        table.row(name, row["next_s"], row["first_s"])
