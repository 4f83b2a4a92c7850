"""The times until a program on a Kubernetes cluster answers, and until nothing of it is left.

    KUBECONFIG=… LAUNCHPAD_KUBERNETES=settings.yaml python benchmarks/cluster.py --workers 8

Launches N CourierNodes, calls each of them once, and stops. It has to run where pods can be reached:
on a node of the cluster, or in a pod. The worst of the rounds counts.
"""

from __future__ import annotations

import time

import launchpad as lp
from benchmarks.harness import bars
from benchmarks.harness.command_line import Parser
from benchmarks.harness.figures import spread
from benchmarks.harness.programs import replicas

BARS = bars.parse("""
from launch() to the last answer, worst      | cluster/answer_s/max   | ≤ 10 s
from stop() until nothing is left, worst     | cluster/stop_s/max     | ≤ 10 s
""")


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
    answers, stops = zip(*rounds, strict=True)
    found = {"workers": options.workers, "answer_s": spread(answers), "stop_s": spread(stops)}
    for name in ("answer_s", "stop_s"):
        print(f"{name}: median {found[name]['median']:.2f} of {options.rounds} rounds")
    bars.finish(options, {"cluster": {**found, "answer_and_stop_s": rounds}}, BARS)


if __name__ == "__main__":
    main()
