"""What we promise of calls, beside what was measured."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

AT_MOST, AT_LEAST = "≤", "≥"
HOLDS = "yes"
_COMPARE: dict[str, Callable[[float, float], bool]] = {
    AT_MOST: operator.le,
    AT_LEAST: operator.ge,
}


@dataclass(frozen=True)
class Bar:
    """One promise, and where in a report its figure is: `latency/unpinned/courier/p50_us`.

    Where the figure is a spread, its median counts.
    """

    what: str
    figure: str
    sign: str
    limit: float
    unit: str = ""

    def figure_in(self, report: dict[str, Any]) -> float | None:
        """None where it was not measured."""
        found: Any = report
        for key in self.figure.split("/"):
            if not isinstance(found, dict) or key not in found:
                return None
            found = found[key]
        return float(found["median"] if isinstance(found, dict) else found)

    def verdict(self, figure: float | None) -> str:
        if figure is None:
            return "not measured"
        return HOLDS if _COMPARE[self.sign](figure, self.limit) else "NO"


PINNED, SHARED = ("two cores", "one core"), ("unpinned", "one core")
GUARDED = "with token, deadline and counters"
ALL = "counters, token, deadline"
BARS = (
    Bar(
        f"p50 to raw, unpinned, {GUARDED}",
        "latency/unpinned/courier guarded/p50_to_raw",
        AT_MOST,
        1.3,
    ),
    Bar(
        f"p50 to raw, two cores, {GUARDED}",
        "latency/two cores/courier guarded/p50_to_raw",
        AT_MOST,
        1.4,
    ),
    Bar(
        f"p99 to raw, unpinned, {GUARDED}",
        "latency/unpinned/courier guarded/p99_to_raw",
        AT_MOST,
        3,
    ),
    Bar(
        f"p99 to raw, two cores, {GUARDED}",
        "latency/two cores/courier guarded/p99_to_raw",
        AT_MOST,
        3,
    ),
    *(
        bar
        for where in PINNED
        for bar in (
            Bar(
                f"20,000 futures, to raw batched, {where}",
                f"pipelined/{where}/courier/to_raw_batched",
                AT_LEAST,
                0.8,
            ),
            Bar(
                f"20,000 futures, to uvloop, {where}",
                f"pipelined/{where}/courier/to_uvloop",
                AT_LEAST,
                0.7,
            ),
            Bar(
                f"200 coroutines, to uvloop, {where}",
                f"coroutines/{where}/courier/to_uvloop",
                AT_LEAST,
                0.6,
            ),
            Bar(
                f"4 threads, to raw with a lock, {where}",
                f"threads/4 threads/{where}/courier/to_raw_locked",
                AT_LEAST,
                1.5,
            ),
        )
    ),
    *(
        bar
        for where in SHARED
        for bar in (
            Bar(
                f"16 clients, one call each, to uvloop, {where}",
                f"many_to_one/one call each, {where}/courier/to_uvloop",
                AT_LEAST,
                0.8,
            ),
            Bar(
                f"16 clients, 50 calls each, to uvloop, {where}",
                f"many_to_one/50 calls each, {where}/courier/to_uvloop",
                AT_LEAST,
                0.8,
            ),
            Bar(
                f"broadcast of 1 MB to 8, to a call, {where}",
                f"broadcast/unix, {where}/to_one_call",
                AT_MOST,
                2.5,
            ),
        )
    ),
    Bar("p50 in process", "latency/unpinned/courier in-process/p50_us", AT_MOST, 45, "µs"),
    Bar("1 MB there and back", "arrays/GB_per_s/courier/1 MB", AT_LEAST, 5, "GB/s"),
    Bar("16 MB there and back", "arrays/GB_per_s/courier/16 MB", AT_LEAST, 8, "GB/s"),
    Bar("256 MB there and back", "arrays/GB_per_s/courier/256 MB", AT_LEAST, 8, "GB/s"),
    Bar(
        "peak memory, to the least possible", "arrays/peak_in_arrays/courier/to_least", AT_MOST, 1.2
    ),
    Bar("1 MB over TCP", "arrays/GB_per_s/courier tcp/1 MB", AT_LEAST, 3, "GB/s"),
    Bar("16 MB over TCP", "arrays/GB_per_s/courier tcp/16 MB", AT_LEAST, 3, "GB/s"),
    Bar("256 MB over TCP", "arrays/GB_per_s/courier tcp/256 MB", AT_LEAST, 3, "GB/s"),
    Bar("1 GiB argument", "arrays/one_gib_argument/courier/next_s", AT_MOST, 1, "s"),
    Bar("1 GiB argument, the first", "arrays/one_gib_argument/courier/first_s", AT_MOST, 1, "s"),
    Bar("large future to a call", "futures/one future/worst_to_blocking", AT_MOST, 1.1),
    Bar("8 large futures to 8 calls", "futures/8 futures/worst_to_blocking", AT_MOST, 1.1),
    Bar("large broadcast to calls", "futures/broadcast/worst_to_blocking", AT_MOST, 1.1),
    Bar("small items of a stream", "streams/least_items_per_s", AT_LEAST, 400_000, "items/s"),
    Bar("small items to calls", "streams/least_to_calls", AT_LEAST, 10, "times"),
    Bar("a lone item to a lone call", "streams/worst_to_call", AT_MOST, 1.2),
    Bar("errors of 100,000 futures", "outstanding/courier/errors", AT_MOST, 0),
    Bar("errors of 1,000 clients", "crowd/courier/errors", AT_MOST, 0),
    Bar("server's memory for 1,000 clients", "crowd/courier/server_mib", AT_MOST, 100, "MiB"),
    Bar("set-up with TLS", "connecting/courier tls/set_up_ms", AT_MOST, 10, "ms"),
    Bar("p50 with TLS, unpinned", "latency/unpinned/courier tls/p50_us", AT_MOST, 80, "µs"),
    Bar("p50 with TLS, two cores", "latency/two cores/courier tls/p50_us", AT_MOST, 80, "µs"),
    Bar(f"{ALL}, unpinned", f"overheads/unpinned/{ALL}/costs_us", AT_MOST, 3, "µs"),
    Bar(f"{ALL}, one core", f"overheads/one core/{ALL}/costs_us", AT_MOST, 3, "µs"),
    Bar(f"{ALL}, two cores", f"overheads/two cores/{ALL}/costs_us", AT_MOST, 3, "µs"),
    Bar(
        "p50 of a Ray actor's call to courier's",
        "on_ray/times_lower_latency",
        AT_LEAST,
        8,
        "times",
    ),
    Bar("courier's calls/s to a Ray actor's", "on_ray/times_more_calls", AT_LEAST, 5, "times"),
    Bar("client's growth over 1,000,000 calls", "soak/client_mib", AT_MOST, 1, "MiB"),
    Bar("server's growth over 1,000,000 calls", "soak/server_mib", AT_MOST, 1, "MiB"),
    Bar("threads left after close", "soak/left/threads", AT_MOST, 0),
    Bar("descriptors left after close", "soak/left/descriptors", AT_MOST, 0),
    Bar("shared mappings left after close", "soak/left/mappings", AT_MOST, 0),
)


def lines(report: dict[str, Any]) -> Iterator[str]:
    """A line for each bar of what the report is about."""
    for bar in BARS:
        if bar.figure.partition("/")[0] in report:
            yield line(bar, bar.figure_in(report))


def misses(report: dict[str, Any]) -> list[Bar]:
    """Those that do not hold; what was not measured does not."""
    measured = [bar for bar in BARS if bar.figure.partition("/")[0] in report]
    return [bar for bar in measured if bar.verdict(bar.figure_in(report)) != HOLDS]


def line(bar: Bar, figure: float | None) -> str:
    shown = "–" if figure is None else f"{figure:,.2f}" if figure < 1000 else f"{figure:,.0f}"
    limit = f"{bar.sign} {bar.limit:,g} {bar.unit}"
    return f"{bar.what:58}{shown:>10}   {limit:18}{bar.verdict(figure)}"


def show(report: dict[str, Any]) -> None:
    print("\n=== what we promise")
    for each in lines(report):
        print(each)
