"""A check that connections that send garbage do not disturb good clients.

    python benchmarks/garbage.py [--garbage N] [--transports unix,tcp,tls] [--json FILE]

N connections on each transport send garbage (benchmarks/hostile/garbage.py), while a good client in a third
process keeps calling, and new clients connect. The script prints the client's times beside its times without
garbage, and beside its times while another server gets garbage, which shows the effect of a busy machine
alone. At the end the server must not have more descriptors and threads than before.
"""

from __future__ import annotations

import tempfile
import time
from contextlib import ExitStack
from typing import Any

from benchmarks.harness import holdings, machine
from benchmarks.harness.command_line import Parser, finish
from benchmarks.harness.figures import Table
from benchmarks.harness.processes import Worker, wait_until
from benchmarks.hostile import garbage
from benchmarks.hostile.target import TRANSPORTS, Target, new_target, serve

HELD = ("descriptors", "threads")  # the server must have no more of these at the end
QUIET_S = 5.0
SETTLE_S = 30.0  # the server closes a connection without a hello after 5 s, and ends an idle thread after 3


def start_target(stack: ExitStack, transport: str) -> Target:
    directory = stack.enter_context(tempfile.TemporaryDirectory(dir="/tmp"))
    started: Target = Worker(stack, serve, new_target(transport, directory)).hear()
    return started


def disturb(transport: str, n: int, quiet_s: float) -> dict[str, Any]:
    with ExitStack() as stack:
        target = start_target(stack, transport)
        other_target = start_target(stack, transport)
        good = Worker(stack, garbage.watch, target)
        good.hear()
        quiet = observe(good, lambda: time.sleep(quiet_s))
        before = settled(target)
        at_other = observe(good, lambda: send_garbage(stack, other_target, n // 10))
        at_target = observe(good, lambda: send_garbage(stack, target, n))
        return {
            "connections": n,
            "quiet": quiet,
            "garbage elsewhere": at_other,
            "garbage here": at_target,
            "before": before,
            "after": settled(target, before),
        }


def observe(good: Worker, work: Any) -> dict[str, Any]:
    """Return what the good client measures during the work."""
    good.say("begin")
    began = time.perf_counter()
    work()
    figures: dict[str, Any] = good.ask("end")
    return figures | {"seconds": round(time.perf_counter() - began, 1)}


def send_garbage(stack: ExitStack, target: Target, n: int) -> None:
    """Send garbage from a process of its own, and wait until it is done."""
    sender = Worker(stack, garbage.send_garbage, target, n)
    # The sender sends True now and then, so that `hear` doesn't time out, and False at the end.
    while sender.hear():
        pass


def settled(target: Target, before: dict[str, float] | None = None) -> dict[str, float]:
    """Return what the server holds, as soon as it is no more than before."""

    def is_normal() -> bool:
        now = holdings.belongings(target.pid)
        return before is None or all(now[kind] <= before[kind] for kind in HELD)

    wait_until(is_normal, SETTLE_S, pause_s=0.2)
    now = holdings.belongings(target.pid)
    mib = holdings.resident(target.pid) / 2**20
    return {**{kind: now[kind] for kind in HELD}, "mib": mib}


def show_garbage(transport: str, results: dict[str, Any]) -> list[str]:
    print(f"\n{transport}: {results['connections']:,} garbage connections")
    columns = {"calls": ",", "errors": "", "p50 µs": ".1f", "p99 µs": ".1f"}
    table = Table("", {**columns, "new client p99 ms": ".1f", "s": ".1f"})
    for name in ("quiet", "garbage elsewhere", "garbage here"):
        row = results[name]
        figures = ("calls", "errors", "p50_us", "p99_us", "new_client_p99_ms", "seconds")
        table.row(name, *(row[figure] for figure in figures))
    before = results["before"]
    after = results["after"]
    changes = [f"{key} {before[key]:.0f} → {after[key]:.0f}" for key in before]
    print(f"  the server holds: {', '.join(changes)}")
    faults = [f"{transport}: {key}" for key in HELD if after[key] > before[key]]
    error = results["garbage here"]["first_error"]
    if error:
        faults.append(f"{transport}: a good client has got {error}")
    return faults


def main() -> None:
    options = Parser(
        __doc__, {"garbage": 300}, garbage=100_000, transports=list(TRANSPORTS)
    ).parse_args()
    results: dict[str, Any] = {}
    print(machine.in_words(machine.describe()))
    faults = []
    for transport in options.transports:
        quiet_s = 0.2 if options.quick else QUIET_S
        results[transport] = disturb(transport, options.garbage, quiet_s)
        faults += show_garbage(transport, results[transport])
    finish(options, {"garbage": results}, faults)


if __name__ == "__main__":
    main()
