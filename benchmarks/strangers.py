"""Who does not belong is refused before anything is unpickled, and noise does not disturb those who do.

    python benchmarks/strangers.py [--tries N] [--garbage N] [--carriers unix,tcp,tls] [--json FILE] [--quick]

Strangers (benchmarks/hostile/strangers.py) come with a wrong token, another run's certificate, a
forged one, none, or no greeting at all, and send a call whose argument is a canary: N tries on each
carrier, shared out evenly. The server, in a process of its own, counts the canaries that it unpickles.

Garbage (benchmarks/hostile/garbage.py): N connections to each carrier on which nonsense is said, while
a good client in a third process keeps calling, and newcomers come. What it sees stands beside what it
sees when nobody disturbs, and when as many processes are busy with garbage at another server: that is
what the machine costs, and not the server. Afterwards the server must hold what it held before.
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

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from benchmarks.calls import machine, report
from benchmarks.calls.worker import Worker
from benchmarks.hostile import bystander, garbage, strangers
from benchmarks.hostile.canary import Canary
from benchmarks.hostile.target import CARRIERS, Footprint, Target, footprint, new_target, serve

QUIET_S = 5.0
SETTLE_S = 30.0  # a connection that never greets is given up after 5 s, an idle thread after 3


def start_target(stack: ExitStack, carrier: str) -> Target:
    directory = stack.enter_context(tempfile.TemporaryDirectory(dir="/tmp"))
    started: Target = Worker(stack, serve, new_target(carrier, directory)).hear()
    return started


# Strangers.


def try_strangers(carrier: str, tries: int) -> dict[str, Any]:
    with ExitStack() as stack:
        target = start_target(stack, carrier)
        client = stack.enter_context(target.client())
        client.echo(Canary())
        before = client.n_touched()  # one: a canary of ours is noticed
        began = time.perf_counter()
        kinds = strangers.KINDS[carrier]
        outcomes = {
            kind: dict(
                collections.Counter(
                    strangers.visit(target, kind) for _ in range(-(-tries // len(kinds)))
                )
            )
            for kind in kinds
        }
        return {
            "tries": sum(sum(counts.values()) for counts in outcomes.values()),
            "let_in": sum(counts.get(strangers.LET_IN, 0) for counts in outcomes.values()),
            "canaries_touched": client.n_touched() - before,
            "own_canary_noticed": before == 1,
            "outcomes": outcomes,
            "seconds": round(time.perf_counter() - began, 1),
        }


def show_strangers(carrier: str, found: dict[str, Any]) -> bool:
    is_well = found["own_canary_noticed"] and not found["canaries_touched"] + found["let_in"]
    print(
        f"\n{carrier}: {found['tries']:,} strangers, {found['let_in']} let in, "
        f"{found['canaries_touched']} canaries touched ({found['seconds']} s)"
    )
    for kind, counts in found["outcomes"].items():
        told = ", ".join(f"{outcome} × {n:,}" for outcome, n in counts.items())
        print(f"  {kind:48}{told}")
    return bool(is_well)


# Garbage.


def disturb(carrier: str, n: int, quiet_s: float) -> dict[str, Any]:
    with ExitStack() as stack:
        target, next_door = start_target(stack, carrier), start_target(stack, carrier)
        good = Worker(stack, bystander.watch, target)
        good.hear()
        quiet = observe(good, lambda: time.sleep(quiet_s))
        before = settled(target)
        elsewhere = observe(good, lambda: send_garbage(stack, next_door, n // 10))
        here = observe(good, lambda: send_garbage(stack, target, n))
        return {
            "connections": n,
            "quiet": quiet,
            "garbage next door": elsewhere,
            "garbage here": here,
            "before": before._asdict(),
            "after": settled(target, before)._asdict(),
        }


def observe(good: Worker, work: Any) -> dict[str, Any]:
    """What the good client sees meanwhile."""
    good.say("begin")
    began = time.perf_counter()
    work()
    found: dict[str, Any] = good.ask("how was it?")
    return found | {"seconds": round(time.perf_counter() - began, 1)}


def send_garbage(stack: ExitStack, target: Target, n: int) -> None:
    """From a process of its own, which now and then says that it is still at it."""
    nuisance = Worker(stack, garbage.be_a_nuisance, target, n)
    while nuisance.hear():
        pass


def settled(target: Target, before: Footprint | None = None) -> Footprint:
    """What it holds, once that is no more than before."""
    deadline = time.monotonic() + SETTLE_S
    while True:
        now = footprint(target.pid)
        is_normal = before is None or (
            now.descriptors <= before.descriptors and now.threads <= before.threads
        )
        if is_normal or time.monotonic() > deadline:
            return now
        time.sleep(0.2)


def show_garbage(carrier: str, found: dict[str, Any]) -> bool:
    print(f"\n{carrier}: {found['connections']:,} garbage connections")
    print(
        f"  {'':20}{'calls':>10}{'errors':>8}{'p50 µs':>9}{'p99 µs':>9}{'newcomer p99 ms':>17}{'s':>8}"
    )
    for name in ("quiet", "garbage next door", "garbage here"):
        row = found[name]
        print(
            f"  {name:20}{row['calls']:>10,}{row['errors']:>8}{row['p50_us']:>9.1f}{row['p99_us']:>9.1f}"
            f"{row['newcomer_p99_ms']:>17.1f}{row['seconds']:>8.1f}"
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
    parser.add_argument("--tries", type=int, default=10_000, help="of strangers, on each carrier")
    parser.add_argument("--garbage", type=int, default=0, help="connections, to each carrier")
    parser.add_argument("--carriers", default=",".join(CARRIERS))
    parser.add_argument("--json", type=Path, help="also write the report to this file")
    parser.add_argument("--quick", action="store_true", help="seconds; to see that it runs")
    options = parser.parse_args()
    if options.quick:
        options.tries, options.garbage = 60, 300
    found: dict[str, Any] = {"machine": machine.describe(), "strangers": {}, "garbage": {}}
    print(machine.in_words(found["machine"]))
    is_well = True
    for carrier in options.carriers.split(","):
        found["strangers"][carrier] = try_strangers(carrier, options.tries)
        is_well &= show_strangers(carrier, found["strangers"][carrier])
        if options.garbage:
            quiet_s = 0.2 if options.quick else QUIET_S
            found["garbage"][carrier] = disturb(carrier, options.garbage, quiet_s)
            is_well &= show_garbage(carrier, found["garbage"][carrier])
    if options.json:
        report.write(options.json, found)
    sys.exit(0 if is_well else 1)


if __name__ == "__main__":
    main()
