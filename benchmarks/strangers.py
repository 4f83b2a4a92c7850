"""Clients of other runs are refused before anything is unpickled, and garbage does not disturb good clients.

    python benchmarks/strangers.py [--tries N] [--garbage N] [--transports unix,tcp,tls] [--json FILE]

Strangers (benchmarks/hostile/strangers.py) have a wrong token, another run's certificate, a forged one,
none, or send no hello at all, and a call whose argument is a canary: N tries on each transport, shared out
evenly. The server, in a process of its own, counts the canaries that it unpickles.

Garbage (benchmarks/hostile/garbage.py): N connections on each transport, while a good client in a third
process keeps calling, and new clients connect. Its times are shown beside those without garbage, and those
while as much garbage is sent to another server: that is the load of the machine and not of the server.
Afterwards the server must hold as many descriptors and threads as before.
"""

from __future__ import annotations

import argparse
import collections
import sys
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from benchmarks.harness import command_line as report
from benchmarks.harness import machine
from benchmarks.harness.processes import Worker
from benchmarks.hostile import bystander, garbage, strangers
from benchmarks.hostile.canary import Canary
from benchmarks.hostile.target import TRANSPORTS, Footprint, Target, footprint, new_target, serve

QUIET_S = 5.0
SETTLE_S = 30.0  # a connection without a hello is given up after 5 s, an idle thread after 3


def start_target(stack: ExitStack, transport: str) -> Target:
    directory = stack.enter_context(tempfile.TemporaryDirectory(dir="/tmp"))
    started: Target = Worker(stack, serve, new_target(transport, directory)).hear()
    return started


# Strangers.


def try_strangers(transport: str, tries: int) -> dict[str, Any]:
    with ExitStack() as stack:
        target = start_target(stack, transport)
        client = stack.enter_context(target.client())
        client.echo(Canary())
        before = client.n_touched()  # one: a canary of a good client is counted
        began = time.perf_counter()
        kinds = strangers.KINDS[transport]
        outcomes = {
            kind: dict(
                collections.Counter(
                    strangers.try_once(target, kind) for _ in range(-(-tries // len(kinds)))
                )
            )
            for kind in kinds
        }
        return {
            "tries": sum(sum(counts.values()) for counts in outcomes.values()),
            "accepted": sum(counts.get(strangers.ACCEPTED, 0) for counts in outcomes.values()),
            "canaries_unpickled": client.n_touched() - before,
            "own_canary_counted": before == 1,
            "outcomes": outcomes,
            "seconds": round(time.perf_counter() - began, 1),
        }


def show_strangers(transport: str, found: dict[str, Any]) -> bool:
    is_well = found["own_canary_counted"] and not found["canaries_unpickled"] + found["accepted"]
    print(
        f"\n{transport}: {found['tries']:,} strangers, {found['accepted']} accepted, "
        f"{found['canaries_unpickled']} canaries unpickled ({found['seconds']} s)"
    )
    for kind, counts in found["outcomes"].items():
        shown = ", ".join(f"{outcome} × {n:,}" for outcome, n in counts.items())
        print(f"  {kind:48}{shown}")
    return bool(is_well)


# Garbage.


def disturb(transport: str, n: int, quiet_s: float) -> dict[str, Any]:
    with ExitStack() as stack:
        target, other = start_target(stack, transport), start_target(stack, transport)
        good = Worker(stack, bystander.watch, target)
        good.hear()
        quiet = observe(good, lambda: time.sleep(quiet_s))
        before = settled(target)
        elsewhere = observe(good, lambda: send_garbage(stack, other, n // 10))
        here = observe(good, lambda: send_garbage(stack, target, n))
        return {
            "connections": n,
            "quiet": quiet,
            "garbage elsewhere": elsewhere,
            "garbage here": here,
            "before": before._asdict(),
            "after": settled(target, before)._asdict(),
        }


def observe(good: Worker, work: Any) -> dict[str, Any]:
    """What the good client measures during the work."""
    good.say("begin")
    began = time.perf_counter()
    work()
    found: dict[str, Any] = good.ask("end")
    return found | {"seconds": round(time.perf_counter() - began, 1)}


def send_garbage(stack: ExitStack, target: Target, n: int) -> None:
    """Sends it from a process of its own, which now and then says that it is alive."""
    sender = Worker(stack, garbage.send_garbage, target, n)
    while sender.hear():
        pass


def settled(target: Target, before: Footprint | None = None) -> Footprint:
    """What the server holds, once that is no more than before."""
    deadline = time.monotonic() + SETTLE_S
    while True:
        now = footprint(target.pid)
        is_normal = before is None or (
            now.descriptors <= before.descriptors and now.threads <= before.threads
        )
        if is_normal or time.monotonic() > deadline:
            return now
        time.sleep(0.2)


def show_garbage(transport: str, found: dict[str, Any]) -> bool:
    print(f"\n{transport}: {found['connections']:,} garbage connections")
    print(
        f"  {'':20}{'calls':>10}{'errors':>8}{'p50 µs':>9}{'p99 µs':>9}{'new client p99 ms':>19}{'s':>8}"
    )
    for name in ("quiet", "garbage elsewhere", "garbage here"):
        row = found[name]
        print(
            f"  {name:20}{row['calls']:>10,}{row['errors']:>8}{row['p50_us']:>9.1f}{row['p99_us']:>9.1f}"
            f"{row['new_client_p99_ms']:>19.1f}{row['seconds']:>8.1f}"
        )
    before, after = found["before"], found["after"]
    held = [f"{key} {before[key]:.0f} → {after[key]:.0f}" for key in before]
    print(f"  the server holds: {', '.join(held)}")
    if error := found["garbage here"]["first_error"]:
        print(f"  the first error: {error}")
    has_settled = all(after[key] <= before[key] for key in ("descriptors", "threads"))
    return has_settled and not found["garbage here"]["errors"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tries", type=int, default=10_000, help="of strangers, on each transport")
    parser.add_argument("--garbage", type=int, default=0, help="connections, to each transport")
    parser.add_argument("--transports", default=",".join(TRANSPORTS))
    parser.add_argument("--json", type=Path, help="also write the report to this file")
    parser.add_argument("--quick", action="store_true", help="seconds; to see that it runs")
    options = parser.parse_args()
    if options.quick:
        options.tries, options.garbage = 60, 300
    found: dict[str, Any] = {"machine": machine.describe(), "strangers": {}, "garbage": {}}
    print(machine.in_words(found["machine"]))
    is_well = True
    for transport in options.transports.split(","):
        found["strangers"][transport] = try_strangers(transport, options.tries)
        is_well &= show_strangers(transport, found["strangers"][transport])
        if options.garbage:
            quiet_s = 0.2 if options.quick else QUIET_S
            found["garbage"][transport] = disturb(transport, options.garbage, quiet_s)
            is_well &= show_garbage(transport, found["garbage"][transport])
    if options.json:
        report.write_report(options.json, found)
    sys.exit(0 if is_well else 1)


if __name__ == "__main__":
    main()
