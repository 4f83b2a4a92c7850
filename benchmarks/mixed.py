"""Traffic of all kinds at once: does a call pass its deadline, does anything grow?

    python benchmarks/mixed.py --minutes 60

Ten threads of one process, two of them event loops, make calls of all kinds in random order, to servers
in another process (unix, tcp, tls) and in their own (inproc): plain calls, futures, streams as results and
as arguments, which are read to the end, left, closed, dropped; deadlines that pass, cancels, exceptions,
callbacks, new clients. benchmarks/traffic/kinds.py has them all.

After every round of a minute all is closed, and what both processes have is looked at. Printed are, by
kind, how many there were and how long the longest took, and, from the first round to the last,

    past a deadline       calls that took longer than they may                                        0
    wrong                 answers, exceptions, generators that were not closed                        0
    threads, descriptors  more than after the first round, in both processes                          0
    memory                more than in the first third (median of the last third), each process   ≤ 8 MiB
"""

from __future__ import annotations

import secrets
import tempfile
import time
from contextlib import ExitStack
from typing import Any

from benchmarks.harness import holdings
from benchmarks.harness.command_line import Parser, finish
from benchmarks.harness.figures import Table
from benchmarks.harness.processes import Worker
from benchmarks.traffic import processes
from launchpad.courier.security.certificates import make_credentials

MEMORY_BYTES = 8 << 20
ROUND_S = 56.0  # and some seconds of quiet
QUICK_S = 2.0


def measure(rounds: int, round_s: float) -> dict[str, Any]:
    """Run all rounds; the first one is to fill caches, heaps and pools."""
    kinds: dict[str, dict[str, float]] = {}
    found: dict[str, Any] = {"faults": [], "kinds": kinds, "memory_bytes": [], "belongings": []}
    began = time.monotonic()
    with ExitStack() as stack:
        directory = stack.enter_context(tempfile.TemporaryDirectory(prefix="lp-", dir="/tmp"))
        setup = processes.Setup(directory, secrets.token_bytes(32), make_credentials())
        server = Worker(stack, processes.serve, setup)
        caller = Worker(stack, processes.call, setup, server.hear())
        caller.hear()
        for number in range(rounds):
            records, faults, calling = caller.ask(round_s)
            serving = server.ask(True)
            for kind, (n, total_s, worst_s) in records.items():
                known = kinds.setdefault(kind, {"n": 0, "total_s": 0.0, "worst_s": 0.0})
                known["n"] += n
                known["total_s"] += total_s
                known["worst_s"] = max(known["worst_s"], worst_s)
            sizes = [holdings.footprint([each.pid]) for each in (caller, server)]
            found["faults"] += [f"round {number + 1}: {fault}" for fault in faults]
            found["memory_bytes"].append(sizes)
            found["belongings"].append([calling, serving])
            print(
                f"{time.monotonic() - began:6.0f} s  {sum(k['n'] for k in kinds.values()):9,.0f}"
                f"  threads {calling['threads']:3} {serving['threads']:3}"
                f"  descriptors {calling['descriptors']:3} {serving['descriptors']:3}"
                f"  memory {sizes[0] / 2**20:6.1f} {sizes[1] / 2**20:6.1f} MiB"
                f"  faults {len(found['faults'])}",
                flush=True,
            )
            if any("stuck" in fault for fault in faults):
                break
    return found


def growth(found: dict[str, Any]) -> dict[str, dict[str, int]]:
    """Return what each process has more of."""
    grown = {}
    for i, process in enumerate(("calling", "serving")):
        first, last = (found["belongings"][at][i] for at in (0, -1))
        grown[process] = {what: last[what] - first[what] for what in first}
        sizes = [each[i] for each in found["memory_bytes"]]
        if len(sizes) >= 6:  # the first rounds fill the heap
            grown[process]["memory_bytes"] = int(holdings.growth(sizes[len(sizes) // 3 :]))
    return grown


def main() -> None:
    """Print the figures; exit with 1 if one is not as promised."""
    options = Parser(__doc__, {"minutes": 0.0}, minutes=60.0).parse_args()
    found = measure(max(2, round(options.minutes)), QUICK_S if options.quick else ROUND_S)
    print()
    table = Table("", {"n": ",", "mean ms": ".1f", "worst ms": ".0f"}, width=26)
    for kind, record in sorted(found["kinds"].items()):
        mean_ms = 1000 * record["total_s"] / record["n"]
        table.row(kind, record["n"], mean_ms, 1000 * record["worst_s"])
    grown = growth(found)
    faults = found["faults"]
    for process, more in grown.items():
        print(f"{process}: " + ", ".join(f"{n:+,} {what}" for what, n in more.items()))
        limits = dict.fromkeys(more, 0) | {"memory_bytes": MEMORY_BYTES}
        faults += [f"{process}: {n:+,} {what}" for what, n in more.items() if n > limits[what]]
    finish(options, {"mixed": found, "grown": grown}, faults)


if __name__ == "__main__":
    main()
