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

import collections
import tempfile
import time
from contextlib import ExitStack
from typing import Any

from benchmarks.harness import holdings, machine
from benchmarks.harness.command_line import Parser, finish
from benchmarks.harness.figures import Table
from benchmarks.harness.processes import Worker, wait_until
from benchmarks.hostile import bystander, garbage, strangers
from benchmarks.hostile.canary import Canary
from benchmarks.hostile.target import TRANSPORTS, Target, new_target, serve

HELD = ("descriptors", "threads")  # of which the server must have no more in the end
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


def show_strangers(transport: str, found: dict[str, Any]) -> list[str]:
    is_well = found["own_canary_counted"] and not found["canaries_unpickled"] + found["accepted"]
    print(
        f"\n{transport}: {found['tries']:,} strangers, {found['accepted']} accepted, "
        f"{found['canaries_unpickled']} canaries unpickled ({found['seconds']} s)"
    )
    for kind, counts in found["outcomes"].items():
        shown = ", ".join(f"{outcome} × {n:,}" for outcome, n in counts.items())
        print(f"  {kind:48}{shown}")
    return [] if is_well else [f"{transport}: a stranger was heard, or no canary counted"]


# Garbage.


def disturb(transport: str, n: int, quiet_s: float) -> dict[str, Any]:
    with ExitStack() as stack:
        target = start_target(stack, transport)
        other = start_target(stack, transport)
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
            "before": before,
            "after": settled(target, before),
        }


def observe(good: Worker, work: Any) -> dict[str, Any]:
    """Return what the good client measures during the work."""
    good.say("begin")
    began = time.perf_counter()
    work()
    found: dict[str, Any] = good.ask("end")
    return found | {"seconds": round(time.perf_counter() - began, 1)}


def send_garbage(stack: ExitStack, target: Target, n: int) -> None:
    """Send it from a process of its own, which now and then says that it is alive."""
    sender = Worker(stack, garbage.send_garbage, target, n)
    while sender.hear():
        pass


def settled(target: Target, before: dict[str, float] | None = None) -> dict[str, float]:
    """Return what the server holds, once that is no more than before."""

    def is_normal() -> bool:
        now = holdings.belongings(target.pid)
        return before is None or all(now[what] <= before[what] for what in HELD)

    wait_until(is_normal, SETTLE_S, pause_s=0.2)
    now = holdings.belongings(target.pid)
    mib = holdings.resident(target.pid) / 2**20
    return {**{what: now[what] for what in HELD}, "mib": mib}


def show_garbage(transport: str, found: dict[str, Any]) -> list[str]:
    print(f"\n{transport}: {found['connections']:,} garbage connections")
    columns = {"calls": ",", "errors": "", "p50 µs": ".1f", "p99 µs": ".1f"}
    table = Table("", {**columns, "new client p99 ms": ".1f", "s": ".1f"})
    for name in ("quiet", "garbage elsewhere", "garbage here"):
        row = found[name]
        figures = ("calls", "errors", "p50_us", "p99_us", "new_client_p99_ms", "seconds")
        table.row(name, *(row[figure] for figure in figures))
    before = found["before"]
    after = found["after"]
    held = [f"{key} {before[key]:.0f} → {after[key]:.0f}" for key in before]
    print(f"  the server holds: {', '.join(held)}")
    faults = [f"{transport}: {key}" for key in HELD if after[key] > before[key]]
    if error := found["garbage here"]["first_error"]:
        faults.append(f"{transport}: a good client has got {error}")
    return faults


def main() -> None:
    transports = ",".join(TRANSPORTS)
    quick = {"tries": 60, "garbage": 300}
    options = Parser(__doc__, quick, tries=10_000, garbage=0, transports=transports).parse_args()
    found: dict[str, Any] = {"strangers": {}, "garbage": {}}
    print(machine.in_words(machine.describe()))
    faults = []
    for transport in options.transports.split(","):
        found["strangers"][transport] = try_strangers(transport, options.tries)
        faults += show_strangers(transport, found["strangers"][transport])
        if options.garbage:
            quiet_s = 0.2 if options.quick else QUIET_S
            found["garbage"][transport] = disturb(transport, options.garbage, quiet_s)
            faults += show_garbage(transport, found["garbage"][transport])
    finish(options, found, faults)


if __name__ == "__main__":
    main()
