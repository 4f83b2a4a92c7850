"""A check of calls over TLS between hosts, while the network and the hosts fail at random.

    python benchmarks/hosts.py [--faults N] [--pairs N] [--kinds KIND…] [--seed S] [--json FILE] [--quick]

The hosts are namespaces of this machine (tests/hosts), which needs root. They form pairs: a server on one
host, callers on the other. The server notes each call on its host's disk before it answers. The callers are
threads and coroutines that make calls, futures and streams without a pause, and record how each of them ends.
At the same time, each pair has faults of these kinds, one after the other, each for 1 to 8 s:

    cable     the cable of one of the hosts is out
    in        all that goes to one of the hosts is lost
    out       all that comes from one of the hosts is lost
    cut       what the two hosts send to each other is lost
    pause     the server's host is paused, like a virtual machine: its kernel doesn't answer, either
    freeze    the processes of the server's host are stopped; its kernel still acknowledges
    power     the server's host loses its power, boots, and the server starts again
    address   the server's host loses its address, and gets another one

At the end the script compares the callers' records with the servers' notes (testing.History). It exits with 1
if one of these doesn't hold:

- No acknowledged call is lost, and none has run twice.
- After the beginning of a silent fault, each call in flight ends within 4 s. All faults are silent except
  freeze. benchmarks/between_hosts/verdict.py says which calls are in flight.
- After the end of a fault, a call succeeds within 2 s, and calls of every kind within 3 s.
- A frozen host loses nothing: its calls only take longer.

200 faults take about 7 minutes.
"""

from __future__ import annotations

import itertools
import sys
import time

from benchmarks.between_hosts import faults, pair, verdict
from benchmarks.harness import bars
from benchmarks.harness.command_line import Parser
from benchmarks.harness.figures import Table
from tests.hosts import requirements
from tests.hosts.network import Network

COMPLAINTS = 20
"""The number of broken promises that are printed with their calls."""


def main() -> None:
    quick = {"faults": 8, "pairs": 4}
    options = Parser(
        __doc__, quick, faults=200, pairs=5, kinds=list(faults.KINDS), seed=1
    ).parse_args()
    reason = requirements.why_not()
    if reason:
        print(reason, file=sys.stderr)
        raise SystemExit(requirements.CANNOT_RUN_HERE)
    schedules = faults.draw(options.seed, options.kinds, options.faults, options.pairs)
    began = time.monotonic()
    with Network(2 * options.pairs) as network:
        pairs = pair.run(network, schedules, options.seed)
        histories = [each.history() for each in pairs]
    report = verdict.judge(histories, options.kinds)
    report["hosts"]["seconds"] = round(time.monotonic() - began, 1)
    show(report, options.seed, options.pairs)
    for complaint in itertools.islice(verdict.complaints(histories), COMPLAINTS):
        print(complaint)
    bars.finish(options, report, verdict.BARS)


def show(report: verdict.Report, seed: int, n_pairs: int) -> None:
    """Print a row for each kind of fault."""
    hosts = report["hosts"]
    print(
        f"{hosts['calls']:,} calls, {hosts['faults']} faults of {n_pairs} pairs of hosts,"
        f" seed {seed}, {hosts['seconds']} s"
    )
    print(f"callers were told: {hosts['outcomes']}")
    columns = {
        "faults": "d",
        "in flight": "d",
        "longest end": ".2f",
        "first success": ".2f",
        "all succeed": ".2f",
        "in doubt": "d",
        "lost": "d",
        "twice": "d",
    }
    table = Table("kind", columns, width=10)
    for kind, figures in report["kinds"].items():
        table.row(
            kind,
            figures["faults"],
            figures["in_flight"],
            figures["longest_end_s"],
            figures["first_success_s"],
            figures["all_succeed_s"],
            figures["in_doubt"],
            figures["lost"],
            figures["twice"],
        )


if __name__ == "__main__":
    main()
