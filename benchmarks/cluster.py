"""The times until a program on a Kubernetes cluster answers, and until nothing of it is left.

    KUBECONFIG=… LAUNCHPAD_KUBERNETES=settings.yaml python benchmarks/cluster.py --workers 8

Launches N CourierNodes, calls each of them once, and stops. It has to run where pods can be reached:
on a node of the cluster, or in a pod. Printed are the median and the worst of several rounds:

    answer   from launch() to the N-th answer                        ≤ 10 s for 8 workers on a node of 2 cores
    stop     from stop() until the cluster has nothing of it left    ≤ 10 s
"""

from __future__ import annotations

import statistics
import time

import launchpad as lp
from benchmarks.harness.command_line import Parser, finish
from benchmarks.harness.programs import replicas

LIMIT_S = 10.0


class Echo:
    """Says what it hears."""

    def echo(self, value: int) -> int:
        return value


def measure(workers: int) -> tuple[float, float]:
    """Launch once; return the seconds until all have answered, and until all are gone."""
    program = replicas("echo", workers, lambda: lp.CourierNode(Echo))
    began = time.monotonic()
    running = lp.launch(program, "test_kubernetes")
    answers = [running.client("echo", i).futures.echo(i) for i in range(workers)]
    assert [answer.result(120) for answer in answers] == list(range(workers))
    answered = time.monotonic()
    running.stop()
    return answered - began, time.monotonic() - answered


def main() -> None:
    options = Parser(__doc__, {"rounds": 1}, workers=8, rounds=5).parse_args()
    rounds = [measure(options.workers) for _ in range(options.rounds)]
    faults = []
    for name, times in zip(("answer", "stop"), zip(*rounds, strict=True), strict=True):
        worst_s = max(times)
        median_s = statistics.median(times)
        print(f"{name:8}median {median_s:5.2f} s   worst {worst_s:5.2f} s   ≤ {LIMIT_S:g} s")
        if worst_s > LIMIT_S:
            faults.append(f"{name} took {worst_s:.2f} s")
    found = {"workers": options.workers, "answer_and_stop_s": rounds}
    finish(options, {"cluster": found}, faults)


if __name__ == "__main__":
    main()
