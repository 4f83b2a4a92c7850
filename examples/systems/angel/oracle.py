"""The serial truth: one process that has all weights; and the logical time of a training."""

from collections.abc import Sequence

from examples._shared import logical_time
from examples._shared.data import Array
from examples._shared.logical_time import Event, Spans
from examples.systems.angel.algorithm import Task
from examples.systems.angel.worker import SLOW, Trained


def train(tasks: Sequence[Task]) -> Array:
    """Return the weights. At each clock all workers' gradients are computed from the same weights."""
    weights = tasks[0].first_weights()
    for clock in range(tasks[0].clocks):
        pairs = [(task.keys(clock), task) for task in tasks]
        gradients = [(keys, task.gradient(weights[keys], clock)) for keys, task in pairs]
        for keys, gradient in gradients:
            weights[keys] -= tasks[0].rate / len(tasks) * gradient
    return weights


def spans(trained: Sequence[Trained], staleness: float, overlaps: bool = True) -> Spans:
    """Replay workers' traces: a gradient takes one unit, a slow one several, and a pull one.

        worker ──ask─▶ its link ──pull, once all have pushed that must have─▶ worker ──push─▶ all links

    Without overlap, a worker asks for a pull after its last push.
    """
    n = len(trained)
    links: list[list[Event]] = []
    for worker, trace in enumerate(each.trace for each in trained):
        link: list[Event] = []
        for clock in (event.item for event in trace if event.kind == "pull"):
            is_late = not overlaps and clock > 0
            last_push = Event("push", (clock - 1) * n + worker, worker)
            link.append(last_push if is_late else Event("ask", clock, worker))
            last_clock = clock - staleness - 1  # the last clock at which all must have pushed
            if last_clock >= 0:
                first = int(last_clock) * n
                link += [Event("push", first + sender, sender) for sender in range(n)]
            link.append(Event("pull", clock))
        links.append(link)

    def cost(worker: int, kind: str) -> int:
        if worker >= n:
            return int(kind == "pull")
        return {"quick": 1, "slow": SLOW}.get(kind, 0)

    return logical_time.replay([*(each.trace for each in trained), *links], cost)
