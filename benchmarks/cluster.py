"""How soon a program on a Kubernetes cluster answers, and how soon nothing of it is left.

    KUBECONFIG=… LAUNCHPAD_KUBERNETES=settings.yaml python benchmarks/cluster.py --workers 8

Launches N CourierNodes, calls each of them once, and stops. It has to run where pods can be reached:
on a node of the cluster, or in a pod. Printed are the median and the worst of several rounds:

    answer   from launch() to the N-th answer                        ≤ 10 s for 8 workers on a node of 2 cores
    stop     from stop() until the cluster has nothing of it left    ≤ 10 s
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import launchpad as lp

ANSWER_S = STOP_S = 10.0


class Echo:
    """Says what it hears."""

    def echo(self, value: int) -> int:
        return value


def measure(workers: int) -> tuple[float, float]:
    """One launch: seconds until all have answered, and until all are gone."""
    program = lp.Program("bench")
    with program.group("echo"):
        for _ in range(workers):
            program.add_node(lp.CourierNode(Echo))
    began = time.monotonic()
    running = lp.launch(program, "test_kubernetes")
    answers = [running.client("echo", i).futures.echo(i) for i in range(workers)]
    assert [answer.result(120) for answer in answers] == list(range(workers))
    answered = time.monotonic()
    running.stop()
    return answered - began, time.monotonic() - answered


def main() -> None:
    """Prints the figures; exits with 1 if one is not as promised."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--workers", type=int, default=8)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--quick", action="store_true", help="one round; to see that it runs")
    options = parser.parse_args()
    rounds = [measure(options.workers) for _ in range(1 if options.quick else options.rounds)]
    is_kept = True
    for name, times, most in zip(
        ("answer", "stop"), zip(*rounds, strict=True), (ANSWER_S, STOP_S), strict=True
    ):
        is_kept = is_kept and max(times) <= most
        print(
            f"{name:8}median {statistics.median(times):5.2f} s   worst {max(times):5.2f} s   ≤ {most:g} s"
        )
    if options.json:
        from benchmarks.harness import command_line as report

        found = {"workers": options.workers, "answer_and_stop_s": rounds}
        report.write_report(options.json, {"cluster": found})
    raise SystemExit(0 if is_kept else 1)


if __name__ == "__main__":
    main()
