"""Arrays of float32, there and back: GB/s, the bytes of both ways by the time.

The peak of memory is that of both processes together over what they had before, for two echoes of
256 MB in processes of their own, in arrays of that size. Three is the least possible: the argument,
the server's copy of it, and the result.
"""

from __future__ import annotations

import statistics
import time
from typing import Any

from benchmarks.calls import memory
from benchmarks.calls.contender import Contender, available, needs
from benchmarks.calls.contenders import grpcio_generic, ours, raw_arrays, zeromq
from benchmarks.calls.contenders.raw import Call
from benchmarks.calls.options import Options
from benchmarks.calls.pair import Pair
from benchmarks.calls.placement import unpinned
from benchmarks.calls.spread import spread
from benchmarks.calls.turns import take_turns

KB, MB = 10**3, 10**6
SIZES = {
    "1 kB": KB,
    "16 kB": 16 * KB,
    "128 kB": 128 * KB,
    "1 MB": MB,
    "16 MB": 16 * MB,
    "256 MB": 256 * MB,
    "1 GiB": 2**30,
}
WEIGHED, LARGEST = "256 MB", "1 GiB"
NOT_WEIGHED = ("memcpy", "raw tcp", "courier tls", "courier in-process")
LEAST = 3  # arrays, at the least, that both sides have at once
SECONDS = 0.1  # for each size, or some echoes
UNCOUNTED, COUNTED = 2, 3  # echoes: at first the system has to find the memory
CONTENDERS = [
    Contender("memcpy", raw_arrays.serve_nothing, raw_arrays.connect_memcpy),
    Contender("raw unix", raw_arrays.serve_unix, raw_arrays.connect_unix),
    Contender("raw tcp", raw_arrays.serve_tcp, raw_arrays.connect_tcp, share=1 / 4),
    Contender("courier", ours.serve_unix, ours.connect),
    Contender("courier tcp", ours.serve_tcp, ours.connect, ours.cannot_serve(ours.TCP)),
    Contender("courier tls", ours.serve_tls, ours.connect, ours.cannot_serve_tls, share=1 / 64),
    Contender("courier in-process", ours.serve_nothing, ours.connect, share=1 / 4),
    Contender("zmq", zeromq.serve_arrays, zeromq.connect_arrays, needs("zmq")),
    # At 0.3 GB/s, more takes too long; so it does for the others that have a share.
    Contender("grpcio", grpcio_generic.serve, grpcio_generic.connect, needs("grpc"), share=1 / 64),
]


def measure(options: Options) -> dict[str, Any]:
    contenders = available(CONTENDERS)
    few = max(1, options.rounds * 3 // 5)  # each of them takes long
    rates = rates_at(contenders, [*SIZES][: options.amount(-1, 4)], few, options)
    if not options.quick:
        for name, row in rates_at(contenders, [LARGEST], 1, options).items():
            rates[name] |= row
    return {
        "GB_per_s": rates,
        "peak_in_arrays": weigh(contenders, options.amount(SIZES[WEIGHED], MB)),
        "one_gib_argument": send_one_gib(options),
    }


def rates_at(
    contenders: list[Contender], sizes: list[str], rounds: int, options: Options
) -> dict[str, Any]:
    seconds = 0.0 if options.quick else SECONDS

    def one_turn(pair: Pair) -> dict[str, float]:
        most = SIZES[LARGEST] * pair.contender.share  # a share is of the largest size here
        fitting = [name for name in sizes if SIZES[name] <= most]
        return {name: pair.measure(gb_per_s, SIZES[name], seconds) for name in fitting}

    (by_name,) = take_turns(contenders, unpinned(), rounds, one_turn).values()
    return {name: summary(turns) for name, turns in by_name.items()}


def gb_per_s(echo: Call, size: int, seconds: float) -> float:
    import numpy as np

    array = np.full(size // 4, 1.5, dtype=np.float32)
    array[::1000] = np.arange(len(array[::1000]))
    for _ in range(UNCOUNTED):
        assert np.array_equal(echo(array)[::1000], array[::1000])
    times: list[float] = []
    while sum(times) < seconds or len(times) < COUNTED:
        began = time.perf_counter()
        result = echo(array)
        times.append(time.perf_counter() - began)
        del result
    return 2 * array.nbytes / statistics.median(times) / 1e9


def summary(turns: list[dict[str, float]]) -> dict[str, Any]:
    return {size: spread([turn[size] for turn in turns]) for size in turns[0]}


def weigh(contenders: list[Contender], size: int) -> dict[str, Any]:
    """What two echoes need, in processes of their own."""
    found: dict[str, Any] = {}
    for contender in contenders:
        if contender.name not in NOT_WEIGHED:
            (by_name,) = take_turns(
                [contender], unpinned(), 1, lambda pair: weigh_one(pair, size)
            ).values()
            found |= {name: turn for name, (turn,) in by_name.items()}
    return found


def weigh_one(pair: Pair, size: int) -> dict[str, float]:
    pair.measure(gb_per_s, 4 * KB, 0.0)  # imports, connects
    pids = [pair.client.pid, pair.server.pid]
    before = [memory.resident(pid) for pid in pids]
    with memory.Peak(pids) as peak:
        pair.measure(echo_twice, size)
    peaks = [memory.resident_peak(pid) - was for pid, was in zip(pids, before, strict=True)]
    return {
        "both": peak.growth / size,
        "to_least": peak.growth / size / LEAST,
        "client_resident": peaks[0] / size,
        "server_resident": peaks[1] / size,
    }


def echo_twice(echo: Call, size: int) -> None:
    import numpy as np

    array = np.ones(size // 4, dtype=np.float32)
    for _ in range(2):
        assert len(echo(array)) == len(array)


def send_one_gib(options: Options) -> dict[str, Any]:
    """Seconds of a call with an argument of 1 GiB that returns its size."""
    contenders = [
        Contender("courier", ours.serve_unix, ours.connect_size),
        Contender("courier tcp", ours.serve_tcp, ours.connect_size, ours.cannot_serve(ours.TCP)),
    ]
    size = options.amount(2**30, MB)
    usable = [contender for contender in contenders if not contender.why_not()]
    (by_name,) = take_turns(
        usable, unpinned(), 1, lambda pair: pair.measure(seconds_to_send, size)
    ).values()
    return {name: turn for name, (turn,) in by_name.items()}


def seconds_to_send(call: Call, size: int) -> dict[str, Any]:
    import numpy as np

    array = np.ones(size // 4, dtype=np.float32)
    times = []
    for _ in range(3):
        began = time.perf_counter()
        assert call(array) == array.nbytes
        times.append(time.perf_counter() - began)
    return {"first_s": times[0], "next_s": spread(times[1:])}


def show(report: dict[str, Any]) -> None:
    rates, peaks = report["GB_per_s"], report["peak_in_arrays"]
    sizes = [size for size in SIZES if size in rates["raw unix"]]
    print(f"\n{'GB/s':20}" + "".join(f"{size:>10}" for size in sizes))
    for name, row in rates.items():
        cells = (f"{row[size]['median']:10.2f}" if size in row else f"{'–':>10}" for size in sizes)
        print(f"{name:20}" + "".join(cells))
    print(
        f"\n{'peak, in arrays':20}{'both':>10}{'to least':>10}{'VmHWM: client':>16}{'server':>10}"
    )
    for name, row in peaks.items():
        print(
            f"{name:20}{row['both']:10.2f}{row['to_least']:10.2f}"
            f"{row['client_resident']:16.2f}{row['server_resident']:10.2f}"
        )
    print("\n1 GiB argument")
    for name, row in report["one_gib_argument"].items():
        print(f"{name:20}{row['next_s']['median']:8.2f} s, the first {row['first_s']:.2f} s")
