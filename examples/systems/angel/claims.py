"""Checks of the paper's claims, on what workers and shards have done."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from typing import NamedTuple

import numpy as np

import launchpad as lp
from examples._shared import pictures
from examples._shared.checks import check
from examples._shared.data import Array, Data
from examples._shared.problem import Problem
from examples.systems.angel import oracle
from examples.systems.angel.algorithm import PsFunc
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

    def makespan(self, overlaps: bool = True) -> float:
        """Return the logical time at which the last worker ends."""
        return oracle.makespan([each.trace for each in self.workers], self.staleness, overlaps)


def check_serial(alone: Array, trials: Sequence[Trial], kills: int) -> None:
    """Check that one process arrives at the same weights, and that a shard of the last trial was killed."""
    off = [float(abs(trial.workers[0].weights - alone).max()) for trial in trials]
    attempts = [shard.attempt for shard in trials[-1].workers[0].shards]
    check(
        max(off) <= TOLERANCE and attempts[0] == kills + 1,
        f"workers in step learn what one process learns, to {TOLERANCE:g}, on 1 shard and on 4, of which one"
        f" is killed {kills} times",
        f"off by {off[0]:.0e} and {off[1]:.0e}; the shards ended in attempts {attempts}",
    )


def check_gaps(trial: Trial) -> None:
    """Check that no pull was answered while a worker was too far behind, and that SSP uses its slack."""
    gaps = [gap for shard in trial.workers[0].shards for gap in shard.gaps]
    n_waits = sum(shard.n_waits for shard in trial.workers[0].shards)
    measured = f"at most {max(gaps)}, at {len(gaps)} pulls, of which {n_waits} waited"
    if trial.staleness == float("inf"):
        check(n_waits == 0, f"{trial.name}: no pull waits for a worker", measured)
        return
    limit = f"{trial.staleness:g} clocks behind"
    claim = f"{trial.name}: at no pull is the slowest worker more than {limit}"
    check(max(gaps) <= trial.staleness, claim, measured)
    if trial.staleness:
        claim = f"{trial.name}: some pulls are answered while the slowest worker is behind"
        check(max(gaps) > 0, claim, f"{np.count_nonzero(gaps)} of {len(gaps)} pulls")


def check_pulled(trial: Trial, problem: Problem) -> None:
    """Compare the bytes per weight of the workers' pulls with those of a pull of all weights."""
    ids = product(range(problem.steps), range(problem.workers))
    n_pulled = sum(len(problem.keys(clock, worker)) for clock, worker in ids)
    pulled = trial.edges.total(method="get").bytes_received / n_pulled
    n_bytes = trial.edges.total(method="weights").bytes_received
    whole = n_bytes / len(problem.first_parameters)
    claim = f"a pull of some weights has as many bytes per weight as one of all, to {PERCENT_OFF} %"
    check(pulled <= (1 + PERCENT_OFF / 100) * whole, claim, f"{pulled:.2f} and {whole:.2f} bytes")


def check_psfuncs(large: Trial, small: Trial) -> None:
    """Compare the cost of psFuncs with that of pulling all weights, at shards of different sizes."""

    def cost(trial: Trial, method: str) -> float:
        row = trial.edges.total(server="shard-0", method=method)
        return (row.bytes_sent + row.bytes_received) / row.calls

    psfunc = [cost(trial, "compute") for trial in (large, small)]
    weights = [cost(trial, "weights") for trial in (large, small)]
    check(
        abs(psfunc[0] - psfunc[1]) <= SAME_BYTES and weights[1] < weights[0] / 2,
        "a psFunc costs as many bytes at a large shard as at a small one, but pulling its weights costs more",
        f"{psfunc[0]:.0f} and {psfunc[1]:.0f} bytes instead of {weights[0]:.0f} and {weights[1]:.0f}",
    )
    first = large.workers[0]
    alone = [join([of_part(first.weights)]) for of_part, join in PSFUNCS.values()]
    values = ", ".join(f"{name} {value:.6g}" for name, value in first.psfuncs.items())
    is_right = bool(np.allclose([*first.psfuncs.values()], alone, rtol=TOLERANCE))
    check(is_right, "psFuncs at the shards find what one process finds in all weights", values)


def check_time(bsp: Trial, ssp: Trial, asp: Trial) -> None:
    """Compare the trainings in logical time, in which only gradients and pulls take time."""
    in_step, stale, free = (trial.makespan() for trial in (bsp, ssp, asp))
    claim = f"with stragglers, {ssp.name} takes less logical time than {bsp.name}"
    measured = f"{bsp.name} {in_step:g}, {ssp.name} {stale:g}, {asp.name} {free:g} units"
    check(free <= stale < in_step, claim, measured)
    apart = ssp.makespan(overlaps=False)
    claim = f"{ssp.name} takes less logical time if the next pull overlaps the gradient"
    check(stale < apart, claim, f"{stale:g} units instead of {apart:g}")
    times = {"BSP": in_step, "SSP without overlap": apart, "SSP": stale, "ASP": free}
    pictures.bars("Time with stragglers", "logical time", times)


def check_groups(hybrid: Trial, single: Trial) -> None:
    """Compare the pushes of groups with those of single workers."""
    groups, alone = (trial.edges.total(method="push") for trial in (hybrid, single))
    check(
        2 * groups.calls == alone.calls and groups.bytes_sent < alone.bytes_sent,
        "groups of 2 push half as often as workers alone, and fewer bytes",
        f"{groups.calls} and {alone.calls} times, {groups.bytes_sent / 1e6:.2f} and"
        f" {alone.bytes_sent / 1e6:.2f} MB",
    )


def check_accuracy(trial: Trial, problem: Problem, held_out: Data) -> None:
    """Check that the model classifies enough of the passages of held-out files correctly."""
    accuracy = problem.accuracy(trial.workers[0].weights, held_out)
    claim = f"{trial.name}: {ACCURACY} of {len(held_out)} passages of other files are classified correctly"
    check(accuracy >= ACCURACY, claim, f"{accuracy:.3f}")
