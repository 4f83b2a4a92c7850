"""The logical time of a training, as the workers' traces and the protocol say."""

from collections.abc import Sequence

from examples.systems.angel.worker import SLOW


def makespan(traces: Sequence[Sequence[str]], staleness: float, overlaps: bool = True) -> float:
    """Return the logical time at which the last worker ends.

    A gradient takes 1 unit, a slow one more. A pull takes 1 unit from the moment at which it is asked for, or
    at which the last of the pushes comes that it waits for. Without overlap, a worker asks when it pulls.
    """
    pushed: list[list[float]] = [[] for _ in traces]
    asked = [0.0] * len(traces)
    now = [0.0] * len(traces)
    events = [iter(trace) for trace in traces]
    for clock in range(traces[0].count("push")):
        needed = int(max(clock - staleness, 0))  # pushes of each worker
        for worker, own_events in enumerate(events):
            for event in own_events:
                if event == "ask":
                    asked[worker] = now[worker]
                elif event == "pull":
                    begin = asked[worker] if overlaps else now[worker]
                    others = [own[needed - 1] for own in pushed if needed]
                    now[worker] = max(now[worker], max([begin, *others]) + 1)
                elif event == "push":
                    pushed[worker].append(now[worker])
                    break
                else:
                    now[worker] += SLOW if event == "slow" else 1
    return max(now)
