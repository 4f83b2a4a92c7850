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

import argparse
import secrets
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
MEMORY_BYTES = 8 << 20
ROUND_S = 56.0  # and some seconds of quiet
QUICK_S = 2.0


def measure(rounds: int, round_s: float) -> dict[str, Any]:
    """All rounds; the first one is to fill caches, heaps and pools."""
    from benchmarks.harness import holdings
    from benchmarks.harness.processes import Worker
    from benchmarks.traffic import processes
    from launchpad.courier.security.certificates import make_credentials

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
    """Of each process: what it has more of."""
    from benchmarks.harness.holdings import growth as memory_growth

    grown = {}
    for i, process in enumerate(("calling", "serving")):
        first, last = (found["belongings"][at][i] for at in (0, -1))
        grown[process] = {what: last[what] - first[what] for what in first}
        sizes = [each[i] for each in found["memory_bytes"]]
        if len(sizes) >= 6:  # the first rounds fill the heap
            grown[process]["memory_bytes"] = int(memory_growth(sizes[len(sizes) // 3 :]))
    return grown


def faults(found: dict[str, Any]) -> list[str]:
    """Which promises do not hold."""
    broken = list(found["faults"])
    for process, grown in growth(found).items():
        limits = dict.fromkeys(grown, 0) | {"memory_bytes": MEMORY_BYTES}
        broken += [
            f"the {process} process has {n:+,} {what}"
            for what, n in grown.items()
            if n > limits[what]
        ]
    return broken


def main() -> None:
    """Prints the figures; exits with 1 if one is not as promised."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--minutes", type=float, default=60)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--quick", action="store_true", help="seconds; to see that it runs")
    options = parser.parse_args()
    rounds = 2 if options.quick else max(2, round(options.minutes))
    found = measure(rounds, QUICK_S if options.quick else ROUND_S)
    print(f"\n{'':26}{'n':>10}{'mean':>12}{'worst':>12}")
    for kind, record in sorted(found["kinds"].items()):
        mean_s = record["total_s"] / record["n"]
        print(
            f"{kind:26}{record['n']:10,.0f}{1000 * mean_s:9.1f} ms{1000 * record['worst_s']:9.0f} ms"
        )
    broken = faults(found)
    for process, grown in growth(found).items():
        print(f"{process}: " + ", ".join(f"{n:+,} {what}" for what, n in grown.items()))
    for fault in broken:
        print(f"  {fault}")
    if options.json:
        from benchmarks.harness import command_line as report

        report.write_report(options.json, {"mixed": found, "grown": growth(found)})
    raise SystemExit(1 if broken else 0)


if __name__ == "__main__":
    main()
