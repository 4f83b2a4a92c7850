"""Checks of the papers' claims, on the ranks' results and on the traffic over the edges."""

from collections.abc import Sequence

import numpy as np

import launchpad as lp
from examples._shared.checks import check
from examples._shared.data import Array
from examples._shared.logical_time import Traces, replay
from examples._shared.problem import Problem
from examples.systems.horovod.rank import Options, Trained


def check_near(parameters: Array, expected: Array, tolerance: float, claim: str) -> None:
    """Check that the parameters differ by rounding at most."""
    difference = np.abs(parameters - expected).max()
    check(
        bool(difference <= tolerance),
        f"{claim}, to {tolerance:g}",
        f"largest difference {difference:.1e}",
    )


def check_bytes(edges: lp.edges.Edges, problem: Problem, options: Options) -> None:
    """Check that a rank gets the least possible, in calls of the others and in answers to its own."""
    n = problem.workers
    first = problem.first_parameters
    size = problem.steps * first.size * np.dtype(options.wire).itemsize
    shares = []
    for rank in range(n):
        n_in_calls = edges.total(server=f"rank-{rank}").bytes_sent
        n_in_answers = edges.total(caller=f"rank-{rank}", server="rank").bytes_received
        broadcast = 2 * first.nbytes if rank else 0  # parameters and velocity, at the beginning
        shares.append((n_in_calls + n_in_answers - broadcast) / size)
    least = 2 * (n - 1) / n
    check(
        all(abs(share / least - 1) <= 0.01 for share in shares),
        f"each of {n} ranks gets 2(N-1)/N = {least:.4f} of the gradients at each step",
        f"{' '.join(f'{share:.4f}' for share in shares)}, in {options.wire}",
    )


def check_fusion(traces: Traces) -> None:
    """Check that small tensors travel together, and during the rest of backward."""
    kinds = [event.kind for event in traces[0]]
    n_tensors = kinds.count("backward")
    n_messages = kinds.count("send")
    check(
        0 < n_messages < n_tensors,
        "there are fewer messages than tensors",
        f"{n_tensors} tensors in {n_messages} all-reduces",
    )
    overlap = overlapped(traces)
    check(
        overlap > 0,
        "all-reduces run while backward makes other gradients",
        f"{overlap:.0%} of their logical time, in the trace of rank 0",
    )


def overlapped(traces: Traces) -> float:
    """Return the share of all-reduces' logical time in which backward runs, if a tensor of each takes 1."""
    own = (0, "backward"), (1, "all-reduce")
    spans = replay(traces, lambda *event: int(event in own))
    share = 0.0
    for event, own_span in zip(traces[0], spans[0], strict=True):
        for other, span in zip(traces[1], spans[1], strict=True):
            if event.kind == "backward" and other.kind == "all-reduce":
                end = min(own_span.end, span.end)
                share += max(float(end - max(own_span.start, span.start)), 0.0)
    return share / max(sum(event.kind == "all-reduce" for event in traces[1]), 1)


def check_kill(disturbed: Sequence[Trained], undisturbed: Sequence[Trained]) -> None:
    """Check that ranks that were started again went on where rank 0 had saved."""
    pairs = zip(disturbed, undisturbed, strict=True)
    n_same = sum(np.array_equal(one.parameters, other.parameters) for one, other in pairs)
    generation = min(trained.generation for trained in disturbed)
    check(
        n_same == len(undisturbed) and generation > 1,
        "a rank that is killed changes no bit of the result",
        f"{n_same} of {len(undisturbed)} ranks equal the undisturbed ones, in generation {generation}",
    )
