"""Checks of the paper's claims, on what workers and shards have done."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

import launchpad as lp
from examples._shared.checks import check
from examples._shared.data import Array
from examples.systems.angel import oracle
from examples.systems.angel.makespan import makespan
from examples.systems.angel.regression import Rows
from examples.systems.angel.worker import Outcome, Trained

ACCURACY = 0.9
PERCENT_OFF = 5
SAME_BYTES = 16  # numbers are pickled in a few bytes more or less


class Trial(NamedTuple):
    """One training: how stale weights may be, the workers' results, and the traffic over the edges."""

    name: str
    staleness: float
    workers: list[Trained]
    edges: lp.edges.Edges

    @property
    def outcome(self) -> Outcome:
        outcome = self.workers[0].outcome
        assert outcome is not None
        return outcome

    @property
    def weights(self) -> Array:
        return self.outcome.weights.values

    @property
    def seconds(self) -> float:
        return max(worker.seconds for worker in self.workers)


def check_serial(trials: Sequence[Trial], alone: Array) -> None:
    """Check that one process, with the workers' batches in their order, arrives at the same weights."""
    differences = [float(np.abs(trial.weights - alone).max()) for trial in trials]
    check(
        not any(differences),
        "workers in step learn the same bits as one process, on any number of shards",
        ", ".join(f"{t.name} off by {d:g}" for t, d in zip(trials, differences, strict=True)),
    )


def check_killed(trial: Trial, kills: int) -> None:
    """Check that there were kills to survive. `check_serial` checks the bits."""
    attempts = [shard.attempt for shard in trial.outcome.shards]
    check(
        attempts[0] == kills + 1,
        f"{trial.name} learned the same bits as one process, although its first shard was killed {kills}"
        " times",
        f"the shards ended in attempts {attempts}",
    )


def check_gaps(trial: Trial) -> None:
    """Check that no pull was answered while a worker was too far behind. ASP has no limit."""
    gets = [get for shard in trial.outcome.shards for get in shard.gets]
    gap = max(get.clock - get.slowest for get in gets)
    waits = sum(get.has_waited for get in gets)
    if trial.staleness == float("inf"):
        claim = "no pull waits for a worker"
        ok = waits == 0
    else:
        claim = f"at no pull is the slowest worker more than {trial.staleness:g} clocks behind"
        ok = gap == trial.staleness  # and some pull makes use of all that it may
    measured = f"at most {gap}, at {len(gets)} pulls, of which {waits} waited"
    check(ok, f"{trial.name}: {claim}", measured)


def check_pulled(trials: Sequence[Trial]) -> None:
    """Compare the bytes per weight of each worker's pulls with those of a pull of all weights."""
    by_key = []
    for trial in trials:
        row = trial.edges.total(method="weights")
        by_key.append(row.bytes_received / len(trial.weights))
        for i, worker in enumerate(trial.workers):
            pulled = trial.edges.total(caller=f"worker-{i}", method="get")
            by_key.append(pulled.bytes_received / worker.n_pulled)
    least = min(worker.n_pulled for trial in trials for worker in trial.workers)
    check(
        max(by_key) <= (1 + PERCENT_OFF / 100) * min(by_key),
        f"the answer to a pull has as many bytes per weight for some weights as for all, to {PERCENT_OFF} %",
        f"{min(by_key):.2f} to {max(by_key):.2f} bytes, for {least} to {len(trials[0].weights)} weights",
    )


def check_psfuncs(trials: Sequence[Trial]) -> None:
    """Compare the cost of psFuncs with that of pulling all weights, at shards of different sizes."""
    cost: list[float] = []
    weights_cost: list[float] = []
    for trial in trials:
        for method, costs in (("compute", cost), ("weights", weights_cost)):
            row = trial.edges.total(server="shard-0", method=method)
            costs.append((row.bytes_sent + row.bytes_received) / row.calls)
    check(
        max(cost) - min(cost) <= SAME_BYTES and min(weights_cost) < max(weights_cost) / 2,
        "a psFunc costs the same number of bytes at a large shard and at a small one; pulling the shard's"
        " weights costs more at the large one",
        " and ".join(
            f"{c:.0f} instead of {w:.0f} bytes" for c, w in zip(cost, weights_cost, strict=True)
        ),
    )
    outcome = trials[0].outcome
    weights = trials[0].weights
    expected = {
        "dot(w, w)": weights @ weights,
        "max(w)": weights.max(),
        "nonzeros": np.count_nonzero(weights),
    }
    check(
        all(
            np.isclose(outcome.psfuncs[name], value, rtol=1e-12) for name, value in expected.items()
        ),
        "psFuncs at the shards find the same values as one process in all weights",
        ", ".join(f"{name} {value:.6g}" for name, value in outcome.psfuncs.items()),
    )


def check_time(bsp: Trial, ssp: Trial, asp: Trial) -> None:
    """Compare the trainings in logical time, in which only gradients and pulls take time."""
    in_step, stale, free = (makespan(trial.workers, trial.staleness) for trial in (bsp, ssp, asp))
    clocked = ", ".join(f"{trial.seconds:.2f}" for trial in (bsp, ssp, asp))
    check(
        free <= stale < in_step,
        f"with stragglers, {ssp.name} takes less logical time than {bsp.name}",
        f"{bsp.name} {in_step}, {ssp.name} {stale}, {asp.name} {free} units; {clocked} s by the clock",
    )
    apart = makespan(ssp.workers, ssp.staleness, overlaps=False)
    check(
        stale < apart,
        f"{ssp.name} takes less logical time if the next pull overlaps the gradient",
        f"{stale} units instead of {apart}",
    )


def check_groups(hybrid: Trial, single: Trial) -> None:
    """Compare the pushes of groups with those of single workers."""
    pushed = [trial.edges.total(method="push") for trial in (hybrid, single)]
    groups, alone = ((row.calls, row.bytes_sent) for row in pushed)
    check(
        2 * groups[0] == alone[0] and groups[1] < alone[1],
        "groups of 2 push half as often as workers alone, and fewer bytes",
        f"{groups[0]} and {alone[0]} times, {groups[1] / 1e6:.2f} and {alone[1] / 1e6:.2f} MB",
    )


def check_accuracy(trials: Sequence[Trial], held_out: Rows) -> None:
    """Check that the model tells enough of the passages in held-out files right."""
    accuracies = {trial.name: oracle.accuracy(trial.weights, held_out) for trial in trials}
    most = max(held_out.labels.mean(), 1 - held_out.labels.mean())
    check(
        min(accuracies.values()) >= ACCURACY,
        f"at least {ACCURACY} of {len(held_out.labels)} passages of other files are classified correctly",
        ", ".join(f"{name} {share:.3f}" for name, share in accuracies.items())
        + f"; the same answer to all {most:.3f}",
    )
