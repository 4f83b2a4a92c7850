"""The rules as formulas, applied by one process: commit by commit, in the order that a server recorded.

C is the centre, and c the centre that the worker had pulled. x is the worker's replica, η its learning rate,
and w its window. α is the elasticity, and μ the momentum.

    DOWNPOUR    x ← c;  w times  x ← x − η ∇f(x);                        C ← C + (x − c)
    ADAG        x ← c;  w times  x ← x − η ∇f(x);                        C ← C + (x − c) / w
    DynSGD      x ← c;  w times  x ← x − η ∇f(x);                        C ← C + (x − c) / (1 + staleness)
    AEASGD      w times  x ← x − η ∇f(x);                                C ← C + α (x − c);  x ← x − α (x − c)
    EAMSGD      w times  v ← μ v − η ∇f(x + μ v),  x ← x + v;            the same as AEASGD
    averaging   x ← c;  w times  x ← x − η ∇f(x);                        C ← the mean of all x
"""

import itertools
from collections.abc import Sequence

import numpy as np
import threadpoolctl

from examples._shared.data import Array
from examples._shared.problem import Problem
from examples.systems.dist_keras.algorithm import ELASTICITY, MOMENTUM, RULES, Commit

Replayed = tuple[list[Array], list[Array]]
"""The centre before the first commit and after each, and the replicas at the end."""


def replay(problem: Problem, name: str, record: Sequence[Commit]) -> Replayed:
    """Do what the workers and the server of a rule have done, by its formula."""
    threadpoolctl.threadpool_limits(1)  # as in the workers: with more threads, bits may differ
    window = RULES[name].window
    rate = RULES[name].rate * problem.learning_rate
    n = problem.workers
    is_elastic = name in ("AEASGD", "EAMSGD")
    centres = [problem.first_parameters]
    xs = n * centres
    vs = n * [np.zeros_like(centres[0])]
    steps = [itertools.count() for _ in range(n)]
    for number, (i, seen) in enumerate(record):
        pulled = centres[seen]
        x = xs[i] if is_elastic else pulled
        for step in itertools.islice(steps[i], window):
            if name == "EAMSGD":
                ahead = x + MOMENTUM * vs[i]
                vs[i] = MOMENTUM * vs[i] - rate * problem.gradient(ahead, step, i)
                x = x + vs[i]
            else:
                x = x - rate * problem.gradient(x, step, i)
        xs[i] = x - ELASTICITY * (x - pulled) if is_elastic else x
        n_missing = n - 1 - number % n  # in averaging: the commits before the centre moves
        added = {
            "DOWNPOUR": x - pulled,
            "ADAG": (x - pulled) / window,
            "DynSGD": (x - pulled) / (1 + number - seen),
            "AEASGD": ELASTICITY * (x - pulled),
            "EAMSGD": ELASTICITY * (x - pulled),
            "averaging": 0 if n_missing else sum(xs) / n - centres[-1],
        }
        centres.append(centres[-1] + added[name])
    return centres, xs
