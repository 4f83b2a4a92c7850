"""Checks of the paper's claims, on the results of the pipelines."""

from collections.abc import Sequence

import numpy as np

from examples._shared import logical_time, networks
from examples._shared.checks import check
from examples._shared.data import Data
from examples._shared.logical_time import Event
from examples.systems.pipedream import oracle
from examples.systems.pipedream.algorithm import (
    BACKWARD,
    FORWARD,
    NAIVE,
    STASHING,
    VERTICAL_SYNC,
    Layers,
    Part,
    Plan,
    cut,
)
from examples.systems.pipedream.planner import best_plan, slowest_s
from examples.systems.pipedream.profiler import Profile
from examples.systems.pipedream.program import RATE, WIDTHS

MACHINES = 3
LOST = 0.02  # of accuracy, at most

EQUATIONS = {
    STASHING: "the weights are w(t+1) = w(t) − ν∇f(w_1(t−n+1), …, w_n(t))",
    VERTICAL_SYNC: "the weights are w(t+1) = w(t) − ν∇f(w_1(t−n+1), …, w_n(t−n+1))",
    NAIVE: "without stashing, the weights are not w(t) − ν∇f(w_1(t−n+1), …, w_n(t))",
}

Trained = Sequence[tuple[Layers, int, list[Event]]]
"""The results of the workers of a pipeline: layers, attempt and trace."""


def check_planner(rng: np.random.Generator) -> None:
    """Compare the planner's plan with all plans, for 200 profiles, bandwidths and numbers of machines."""
    worst = 0.0
    for _ in range(200):
        profile = Profile(*rng.exponential(size=(3, rng.integers(1, 7))).tolist())
        machines = int(rng.integers(1, 6))
        bandwidth = float(rng.exponential(10))
        plans = oracle.all_plans(len(profile.seconds), machines)
        least = min(slowest_s(profile, plan, bandwidth) for plan in plans)
        worst = max(worst, abs(best_plan(profile, machines, bandwidth)[0] - least))
    check(worst == 0, "the planner finds the best of all plans", f"200 times, off by {worst}")


def check_plan(profile: Profile) -> Plan:
    """Plan for a network that is slow beside the machines, and for a fast one. Return the former plan."""
    slow = 6 * max(profile.outputs) / sum(profile.seconds)
    (least_s, plan), (_, quick_plan) = (best_plan(profile, MACHINES, f * slow) for f in (1, 1000))
    equal = [Part(len(layers), 1) for layers in np.array_split(WIDTHS[1:], MACHINES)]
    equal_s = slowest_s(profile, equal, slow)
    print(f"      a layer takes {', '.join(f'{1e6 * s:.0f}' for s in profile.seconds)} µs")
    check(
        least_s < equal_s,
        f"the slowest stage of the plan {shown(plan)} takes less than that of {shown(equal)}",
        f"{1e6 * least_s:.0f} µs, {1e6 * equal_s:.0f} µs",
    )
    check(
        (len(plan), len(quick_plan)) == (MACHINES, 1),
        "the best plan is a pipeline without replicas on a slow network, and data parallelism on a fast one",
        f"{shown(plan)}, {shown(quick_plan)}",
    )
    return plan


def shown(plan: Plan) -> str:
    """Return the layers of each stage and its replicas as text: `2 + 3×2`."""
    return " + ".join(f"{n}×{replicas}" if replicas > 1 else f"{n}" for n, replicas in plan)


def check_weights(label: str, trained: Trained, plan: Plan, rule: str, batches: list[Data]) -> None:
    """Compare the weights of all workers with what one process computes."""
    parts = cut(WIDTHS, plan, oracle.train(WIDTHS, plan, batches, RATE, rule == VERTICAL_SYNC))
    truths = [
        truth for (_, truth), part in zip(parts, plan, strict=True) for _ in range(part.replicas)
    ]
    weights = [layers.weights for layers, *_ in trained]
    off = max(np.abs(a - b).max() for a, b in zip(weights, truths, strict=True))
    by_rounds = ", where t counts rounds of the replicas" if len(trained) > len(plan) else ""
    claim = f"{label}, {shown(plan)}: {EQUATIONS[rule]}{by_rounds}"
    check((off == 0) == (rule != NAIVE), claim, f"difference {off:.1e}")


def check_kill(killed: Trained, undisturbed: Trained) -> None:
    """Compare a pipeline in which a worker was killed with an undisturbed one."""
    pairs = zip(killed, undisturbed, strict=True)
    differ = sum(not np.array_equal(a.weights, b.weights) for (a, *_), (b, *_) in pairs)
    attempts = {attempt for _, attempt, _ in killed}
    resumed = min(e.item for *_, events in killed for e in events if e.kind == BACKWARD)
    check(
        differ == 0 and attempts == {2} and resumed > 0,
        "a killed worker changes no bit of the result",
        f"{differ} of {len(killed)} workers differ; all went on in attempt 2, with minibatch {resumed}",
    )


def check_versions(trained: Trained) -> None:
    """Check that stage k of K has held K − k versions of its weights at once, at most."""
    most_versions = [layers.most_versions for layers, *_ in trained]
    k_less = [len(trained) - k for k in range(len(trained))]
    check(
        most_versions == k_less,
        "stage k of K holds K − k versions of its weights",
        f"{most_versions}",
    )


def check_utilisation(traces: Sequence[Sequence[Event]]) -> None:
    """Replay the traces in logical time, and compare them with GPipe's, with as many micro-batches."""
    stages = len(traces)
    spans = logical_time.replay(traces)
    of_first = list(zip(traces[0], spans[0], strict=True))
    begin = next(span.start for event, span in of_first if event.kind == BACKWARD)
    end = max(span.end for event, span in of_first if event.kind == FORWARD)
    busy = sum(begin <= span.start < end for of_worker in spans for span in of_worker)
    utilisation = float(busy / (stages * (end - begin)))
    gpipe = [
        [Event(FORWARD, m, k - 1 if k else None) for m in range(stages)]
        + [Event(BACKWARD, m, k + 1 if k < stages - 1 else None) for m in reversed(range(stages))]
        for k in range(stages)
    ]
    idle = float(logical_time.idle(logical_time.replay(gpipe)))
    check(
        utilisation >= 0.95,
        "in the steady state all stages are busy, in logical time",
        f"{utilisation:.1%}; GPipe's stages, with {stages} micro-batches, {1 - idle:.1%}",
    )


def check_traffic(n_bytes: float) -> None:
    """Compare the bytes per minibatch with those of an all-reduce among as many workers."""
    weights = networks.first_parameters(WIDTHS).nbytes
    all_reduce = 2 * (MACHINES - 1) * weights / MACHINES
    check(
        n_bytes < all_reduce,
        "stages send less than data parallelism would",
        f"{n_bytes / 1e3:.0f} kB per minibatch, instead of {all_reduce / 1e3:.0f} kB",
    )


def check_accuracy(trained: Trained, batches: list[Data], held_out: Data) -> None:
    """Compare the accuracy of the pipeline with that of one process without delays."""
    weights = np.concatenate([layers.weights for layers, *_ in trained])
    alone = oracle.train(WIDTHS, [Part(len(WIDTHS) - 1, 1)], batches, RATE, sync=False)
    accuracy, accuracy_alone = (networks.accuracy(WIDTHS, w, held_out) for w in (weights, alone))
    check(
        accuracy >= accuracy_alone - LOST,
        "nearly as many digits are recognised as if no weights were late",
        f"{accuracy:.3f} instead of {accuracy_alone:.3f}",
    )
