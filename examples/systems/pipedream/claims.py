"""Checks of the paper's claims, on the results of the pipelines."""

from collections.abc import Sequence
from fractions import Fraction

import numpy as np

from examples._shared.checks import check
from examples._shared.logical_time import idle, replay
from examples._shared.problem import Problem
from examples._shared.profiler import Profile
from examples.systems.pipedream import oracle
from examples.systems.pipedream.algorithm import Layers, Plan, best_plan, shown


def check_planner(rng: np.random.Generator) -> None:
    """Compare the planner's plan with all plans, for 200 profiles, bandwidths and numbers of machines."""
    worst = 0.0
    for _ in range(200):
        profile = Profile(*rng.exponential(size=(3, rng.integers(1, 7))).tolist())
        machines = int(rng.integers(1, 6))
        bandwidth = float(rng.exponential(10))
        plans = oracle.all_plans(len(profile.seconds), machines)
        least_s = min(oracle.slowest_s(profile, plan, bandwidth) for plan in plans)
        plan = best_plan(profile, machines, bandwidth)
        worst = max(worst, oracle.slowest_s(profile, plan, bandwidth) / least_s - 1)
    measured = f"200 times, off by {worst:.0e}"
    check(worst <= 1e-12, "the planner finds the best of all plans", measured)


def check_plan(profile: Profile, machines: int) -> Plan:
    """Plan for a network that is slow beside the machines, and for a fast one. Return the former plan."""
    slow = 6 * max(profile.outputs) / sum(profile.seconds)
    plan = best_plan(profile, machines, slow)
    plan_if_fast = best_plan(profile, machines, 1000 * slow)
    print(f"      a layer takes {', '.join(f'{1e6 * s:.0f}' for s in profile.seconds)} µs")
    claim = "the best plan is a pipeline on a slow network, and data parallelism on a fast one"
    is_right = len(plan) > len(plan_if_fast) == 1
    check(is_right, claim, f"{shown(plan)}, {shown(plan_if_fast)}")
    return plan


def check_weights(name: str, workers: Sequence[Layers], problem: Problem, plan: Plan) -> None:
    """Compare the weights of all workers with what one process computes."""
    truth = oracle.train(problem, plan)
    off = max(float(np.abs(own.weights - truth[own.stage]).max()) for own in workers)
    by_rounds = ", where t counts rounds of the replicas" if len(workers) > len(plan) else ""
    equation = f"w(t+1) = w(t) − ν∇f(w_1(t−n+1), …, w_n(t)){by_rounds}"
    check(off == 0, f"{name}, {shown(plan)}: the weights are {equation}", f"difference {off:.1e}")


def check_idle(workers: Sequence[Layers], minibatches: int) -> None:
    """Check in logical time that stages without replicas wait only until the pipeline is full, or empty."""
    k = len(workers)
    waits = idle(replay([layers.trace for layers in workers]))
    measured = (
        f"{waits}; GPipe's with {k} micro-batches {Fraction(k - 1, 2 * k - 1)}, again and again"
    )
    claim = "while n minibatches go through K stages, these wait for (K-1)/(n+K-1) of logical time"
    check(waits == Fraction(k - 1, minibatches + k - 1), claim, measured)
