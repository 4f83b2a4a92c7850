"""A check that the counts of edges are exact, and that links are accurate: `python benchmarks/edges.py`.

With `--launch_type=local_mt`, `ray` or `kubernetes`, the script checks only the counts, with that launch
type. For Kubernetes, KUBECONFIG and LAUNCHPAD_KUBERNETES name the cluster.

exact        20 workers call each other, 1,000,000 times in all, some by futures, then end. `edges()` must
             report exactly the calls that were made on each edge, at both ends.
killed       The same, but one of the workers is killed in between and started again. Its edges are not
             `is_exact`: for these `edges()` must report the calls that the servers got. All others must be
             exact.
delay        The time of a call through `lp.edges.Delay`, less the time of a call without a link. Both come
             after a pause as long as the delay, because a call after a pause takes longer.
bandwidth    The bytes a second through `lp.edges.Bandwidth`, in both directions together.

The script exits with 1 if a count is not exact, or if a link is off by more than a tenth.
"""

from __future__ import annotations

import statistics
import sys
import threading
import time
from collections import Counter
from typing import Any

import numpy as np

import launchpad as lp
from benchmarks.harness.command_line import Parser, finish
from benchmarks.harness.programs import launch, run

AT_A_TIME = 50
KILLED = "killed"
DELAYS_S = (0.002, 0.01, 0.1)
RATES = (1e6, 10e6, 100e6)


class Caller:
    """A worker that calls its peers, and answers them until it is told to end."""

    def __init__(self, calls: int, *peers: Any) -> None:
        self._calls = calls
        self._peers = peers
        self._of_killed: list[int] = []
        self._may_end = threading.Event()

    def run(self) -> tuple[Counter[str], int]:
        """Return worker → the number of calls of it; and the number of calls by the killed worker."""
        counts = self.call_all()
        self._may_end.wait()
        return counts, len(self._of_killed)

    def call_all(self) -> Counter[str]:
        counts: Counter[str] = Counter()
        turn = 0
        while counts.total() < self._calls:
            peer = self._peers[turn % len(self._peers)]
            if turn % 2:
                futures = [peer.futures.add(i) for i in range(AT_A_TIME)]
                name, *_ = [future.result() for future in futures]
            else:
                name, *_ = [peer.add(i) for i in range(AT_A_TIME)]
            counts[name] += AT_A_TIME
            turn += 1
        return counts

    def add(self, number: int) -> str:
        if lp.caller().label == KILLED:
            self._of_killed.append(number)
        return lp.current().name

    def end(self) -> None:
        self._may_end.set()


def call_until_killed(calls: int, *peers: Any) -> None:
    """Call the peers: in the first attempt for ever, later as often as asked."""
    Caller(calls if lp.current().attempt > 1 else sys.maxsize, *peers).call_all()


def count(workers: int, calls: int, launch_type: str, *, kill: bool) -> str:
    """Let workers call each other; return a sentence about the counts. Exit if a count is wrong."""
    program = lp.Program("edges")
    nodes = [lp.CourierNode(Caller) for _ in range(workers - kill)]
    for node in nodes:
        peers = [peer.create_handle() for peer in nodes if peer is not node]
        node.configure(calls // workers, *peers)
    with program.group("worker", serves_until="group"):
        handles = [program.add_node(node) for node in nodes]
    if kill:
        with program.group(KILLED, restart=lp.RestartPolicy(max_restarts=1, backoff=0)):
            program.add_node(lp.PyNode(call_until_killed, calls // workers, *handles))
    began = time.monotonic()
    with launch(program, launch_type) as running:
        if kill:
            while running.metrics().edges.total(caller=KILLED).calls < calls // workers // 3:
                time.sleep(0.1)
            with lp.testing.KillWorkers(running, [KILLED], at_most=1):
                running.wait(labels=[KILLED])
        for client in running.clients("worker"):
            client.end()
        results = running.results("worker")
    took_s = time.monotonic() - began
    edges = running.edges().of(method="add")
    # Edge → the number of calls, as each end must report it; and True if the number must be exact.
    expected = {
        (f"worker-{i}", server): (n, n, True)
        for i, (counts_of_caller, _) in enumerate(results)
        for server, n in counts_of_caller.items()
    }
    # A killed thread is only interrupted, perhaps in the middle of a call: its counts are not lost.
    are_lost = launch_type not in ("local_mt", "test_mt")
    counts = {(e.caller, e.server): (e.calls, e.served, e.is_exact) for e in edges}
    for i, (_, of_killed) in enumerate(results):
        if of_killed:
            edge = (f"{KILLED}-0", f"worker-{i}")
            n_sent = of_killed if are_lost else max(of_killed, counts[edge][0])
            expected[edge] = (n_sent, of_killed, not are_lost)
    total = edges.total()
    n_in_all = sum(n for n, _, _ in expected.values())
    is_whole = not (kill and are_lost)
    if counts != expected or total.is_exact is not is_whole or total.calls != n_in_all:
        off = {edge: (counts.get(edge), n) for edge, n in expected.items() if counts.get(edge) != n}
        sys.exit(f"FAILED: {total}; expected {n_in_all}; off: {off}")
    scope = "all" if is_whole else "those of the one that was killed as its servers got them"
    return f"{total.calls:,} calls on {len(counts)} edges in {took_s:.0f} s, counted at both ends: {scope}"


class Echo:
    def echo(self, value: Any) -> Any:
        return value


def call_through(links: tuple[Any, ...], sizes: list[int], pause_s: float) -> list[float]:
    """Return the seconds that each call takes."""
    times = []
    for size in sizes:
        value = np.zeros(size, np.uint8)
        time.sleep(pause_s)
        began = time.perf_counter()
        links[0].echo(value)
        times.append(time.perf_counter() - began)
    return times


def measure(links: tuple[Any, ...], sizes: list[int], pause_s: float = 0.0) -> list[float]:
    """Return the times of calls in a worker that calls an echo through these links."""
    program = lp.Program("links")
    handle = program.add_node(lp.CourierNode(Echo), label="echo")
    linked = handle.through(*links) if links else handle
    program.add_node(lp.PyNode(call_through, (linked,), sizes, pause_s), label="caller")
    times = run(program)["caller"][0]
    return list(times)


def check(name: str, figure: float, expected: float, unit: str) -> list[str]:
    """Print a figure; return its name as a fault if it is off by more than a tenth."""
    off = figure / expected - 1
    print(f"{name:32} {figure:10.4g} {unit} {off:+8.1%}")
    return [] if abs(off) <= 0.1 else [name]


def main() -> None:
    options = Parser(__doc__, workers=20, calls=1_000_000, samples=30, launch_type="local_mp")
    options = options.parse_args()
    for kill in (False, True):
        print(count(options.workers, options.calls, options.launch_type, kill=kill), flush=True)
    if options.launch_type != "local_mp":
        return
    plain_s = statistics.median(measure((), [0] * 200))
    print(f"{'no link, p50':32} {plain_s * 1e3:10.4g} ms")
    faults = []
    for delay_s in DELAYS_S:
        times = measure((lp.edges.Delay(delay_s),), [0] * options.samples)
        after_a_pause_s = statistics.median(measure((), [0] * options.samples, delay_s))
        figure = statistics.median(times) - after_a_pause_s
        faults += check(f"Delay({delay_s:g}), p50", figure * 1e3, delay_s * 1e3, "ms")
    for rate in RATES:
        size = int(rate * 0.05)
        times = measure((lp.edges.Bandwidth(rate),), [size] * options.samples)
        figure = 2 * size / statistics.median(times)
        faults += check(f"Bandwidth({rate:g}), both ways", figure / 1e6, rate / 1e6, "MB/s")
    finish(options, {}, faults)


if __name__ == "__main__":
    main()
