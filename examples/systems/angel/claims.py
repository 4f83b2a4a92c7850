"""Checks of the paper's claims, on what workers and shards have done."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

import launchpad as lp
from examples._shared import pictures
from examples._shared.checks import check
from examples._shared.data import Array, Data
from examples.systems.angel import oracle
from examples.systems.angel.algorithm import PsFunc
from examples.systems.angel.text import ROOT
from examples.systems.angel.worker import Trained

ACCURACY = 0.9
TOLERANCE = 1e-12
PERCENT_OFF = 5
SAME_BYTES = 16  # numbers are pickled in a few bytes more or less
PSFUNCS: dict[str, PsFunc] = {
    "dot(w, w)": (lambda w: float(w @ w), sum),
    "max(w)": (lambda w: float(w.max()), max),
    "nonzeros": (lambda w: int(np.count_nonzero(w)), sum),
}


class Trial(NamedTuple):
    """One training: how stale weights may be, the workers' results, and the traffic over the edges."""

    name: str
    staleness: float
    workers: list[Trained]
    edges: lp.edges.Edges

    def makespan(self, overlaps: bool = True) -> int:
        """Return the logical time at which the last worker ends."""
        replayed = oracle.spans(self.workers, self.staleness, overlaps)
        return int(max(own[-1].end for own in replayed))


def check_serial(trials: Sequence[Trial], alone: Array) -> None:
    """Check that one process, with the workers' batches in their order, arrives at the same weights."""
    differences = {each.name: abs(each.workers[0].weights - alone).max() for each in trials}
    check(
        max(differences.values()) <= TOLERANCE,
        f"workers in step learn what one process learns, to {TOLERANCE:g}, on any number of shards",
        ", ".join(f"{name} off by {value:g}" for name, value in differences.items()),
    )


def check_killed(trial: Trial, kills: int) -> None:
    """Check that there were kills to survive. `check_serial` checks the weights."""
    attempts = [shard.attempt for shard in trial.workers[0].shards]
    claim = f"{trial.name} learned all this although its first shard was killed {kills} times"
    check(attempts[0] == kills + 1, claim, f"the shards ended in attempts {attempts}")


def check_gaps(trial: Trial) -> None:
    """Check that no pull was answered while a worker was too far behind, and that SSP uses its slack."""
    gets = [get for shard in trial.workers[0].shards for get in shard.gets]
    gap = max(get.clock - get.slowest for get in gets)
    n_waits = sum(get.has_waited for get in gets)
    measured = f"at most {gap}, at {len(gets)} pulls, of which {n_waits} waited"
    if trial.staleness == float("inf"):
        check(n_waits == 0, f"{trial.name}: no pull waits for a worker", measured)
        return
    limit = f"{trial.staleness:g} clocks behind"
    claim = f"{trial.name}: at no pull is the slowest worker more than {limit}"
    check(gap <= trial.staleness, claim, measured)
    if trial.staleness:
        n_early = sum(get.clock > get.slowest for get in gets)
        claim = (
            f"{trial.name}: with stragglers, a pull is answered while the slowest worker is behind"
        )
        check(n_early > 0, claim, f"{n_early} of {len(gets)} pulls")


def check_pulled(trials: Sequence[Trial]) -> None:
    """Compare the bytes per weight of each worker's pulls with those of a pull of all weights."""
    by_key = []
    for trial in trials:
        row = trial.edges.total(method="weights")
        by_key.append(row.bytes_received / len(trial.workers[0].weights))
        for i, worker in enumerate(trial.workers):
            pulled = trial.edges.total(caller=f"worker-{i}", method="get")
            by_key.append(pulled.bytes_received / worker.n_pulled)
    least = min(worker.n_pulled for trial in trials for worker in trial.workers)
    check(
        max(by_key) <= (1 + PERCENT_OFF / 100) * min(by_key),
        f"the answer to a pull has as many bytes per weight for some weights as for all, to {PERCENT_OFF} %",
        f"{min(by_key):.2f} to {max(by_key):.2f} bytes, for {least} weights and more",
    )


def check_psfuncs(trials: Sequence[Trial]) -> None:
    """Compare the cost of psFuncs with that of pulling all weights, at shards of different sizes."""
    cost: dict[str, list[float]] = {"compute": [], "weights": []}
    for trial in trials:
        for method, costs in cost.items():
            row = trial.edges.total(server="shard-0", method=method)
            costs.append((row.bytes_sent + row.bytes_received) / row.calls)
    psfunc, all_weights = cost.values()
    check(
        max(psfunc) - min(psfunc) <= SAME_BYTES and min(all_weights) < max(all_weights) / 2,
        "a psFunc costs the same number of bytes at a large shard and at a small one; pulling the shard's"
        " weights costs more at the large one",
        f"{psfunc[0]:.0f} instead of {all_weights[0]:.0f} bytes and {psfunc[1]:.0f} instead of"
        f" {all_weights[1]:.0f} bytes",
    )
    first = trials[0].workers[0]
    w = first.weights
    expected = [(w**2).sum(), sorted(w)[-1], len(w) - sum(w == 0)]
    check(
        bool(np.allclose([*first.psfuncs.values()], expected, rtol=1e-12)),
        "psFuncs at the shards find the same values as one process in all weights",
        ", ".join(f"{name} {value:.6g}" for name, value in first.psfuncs.items()),
    )


def check_time(bsp: Trial, ssp: Trial, asp: Trial) -> None:
    """Compare the trainings in logical time, in which only gradients and pulls take time."""
    in_step, stale, free = (trial.makespan() for trial in (bsp, ssp, asp))
    check(
        free <= stale < in_step,
        f"with stragglers, {ssp.name} takes less logical time than {bsp.name}",
        f"{bsp.name} {in_step}, {ssp.name} {stale}, {asp.name} {free} units",
    )
    apart = ssp.makespan(overlaps=False)
    claim = f"{ssp.name} takes less logical time if the next pull overlaps the gradient"
    check(stale < apart, claim, f"{stale} units instead of {apart}")


def check_groups(hybrid: Trial, single: Trial) -> None:
    """Compare the pushes of groups with those of single workers."""
    groups, alone = (trial.edges.total(method="push") for trial in (hybrid, single))
    check(
        2 * groups.calls == alone.calls and groups.bytes_sent < alone.bytes_sent,
        "groups of 2 push half as often as workers alone, and fewer bytes",
        f"{groups.calls} and {alone.calls} times, {groups.bytes_sent / 1e6:.2f} and"
        f" {alone.bytes_sent / 1e6:.2f} MB",
    )


def check_accuracy(trial: Trial, held_out: Data) -> None:
    """Check that the model tells enough of the passages in held-out files right."""
    scores = trial.workers[0].weights[held_out.inputs].sum(axis=1) / ROOT
    accuracy = float(((scores > 0) == held_out.targets).mean())
    loss = float(np.log1p(np.exp(np.where(held_out.targets, -scores, scores))).mean())
    share = held_out.targets.mean()
    check(
        accuracy >= ACCURACY,
        f"{trial.name}: {ACCURACY} of {len(held_out)} passages of other files are classified correctly",
        f"{accuracy:.3f}, loss {loss:.3f}; the same answer to all {max(share, 1 - share):.3f}",
    )


def draw(trial: Trial) -> None:
    """Draw when workers pull and compute, in logical time."""
    replayed = oracle.spans(trial.workers, trial.staleness)
    rows = {}
    for i, worker in enumerate(trial.workers):
        pairs = zip(worker.trace, replayed[i], strict=True)
        rows[f"worker {i}"] = [
            pictures.Bar(float(span.start), float(span.end), event.kind)
            for event, span in pairs
            if event.kind in ("quick", "slow")
        ]
    pictures.timeline(trial.name, "logical time", rows)
