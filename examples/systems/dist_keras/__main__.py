"""Run it: python -m examples.systems.dist_keras --lp_launch_type=local_mp."""

from collections import Counter

import numpy as np
from absl import app, flags

import launchpad as lp
from examples._shared import digits, pictures
from examples._shared.checks import QUICK, check, done, phase
from examples._shared.data import Data
from examples._shared.problem import Problem
from examples.systems.dist_keras import claims
from examples.systems.dist_keras.algorithm import RULES
from examples.systems.dist_keras.oracle import replay
from examples.systems.dist_keras.program import make_program

WORKERS = flags.DEFINE_integer("workers", 4, "How many workers train replicas.", 2)
STEPS = flags.DEFINE_integer("steps", 150, "How many gradients each computes by a rule.", 60)
GOOD = ("ADAG", "DynSGD", "AEASGD")
WANTED_ACCURACY = 0.94


def main(_: list[str]) -> None:
    """Train on the data in one order, or in five, while the servers of all rules are killed."""
    data, held_out = digits.load()
    for seed in range(1 if QUICK.value else 5):
        phase(f"order {seed} of the data, {WORKERS.value} workers; the servers are killed")
        order = np.random.default_rng(seed).permutation(len(data))
        run(Problem(data[order], workers=WORKERS.value, steps=STEPS.value), held_out)
    done()


def run(problem: Problem, held_out: Data) -> None:
    """Train by all rules, and check what they do against their formulas."""
    workers = lp.run(make_program(problem, RULES, kill="AEASGD"), preload=["numpy"])["worker"]
    trained = {name: [worker[name] for worker in workers] for name in RULES}
    claims.check_counted(problem, trained)
    staleness = trained["DynSGD"][0].centre.staleness
    n_stale = sum(map(bool, staleness))
    divisors = f"{n_stale} of {len(staleness)} commits; the largest divisor is {max(staleness) + 1}"
    check(n_stale > 0, "DynSGD has stale commits, which it divides by 1 + staleness", divisors)
    losses = {}
    for name, of_rule in trained.items():
        alone = replay(problem, name, of_rule[0].centre.record)
        claims.check_replay(name, of_rule, alone)
        shares = [problem.accuracy(centre, held_out) for centre in alone[0]]
        losses[name] = [problem.loss_and_gradient(centre, held_out)[0] for centre in alone[0]]
        lowest = f"{min(shares[len(shares) // 2 :]):.3f} at the lowest in the second half"
        print(f"      {name}: loss {losses[name][-1]:.3f}, accuracy {shares[-1]:.3f}, {lowest}")
        if name in GOOD:
            claim = f"{name} recognises at least {WANTED_ACCURACY} of the held-out digits"
            check(shares[-1] >= WANTED_ACCURACY, claim, f"{shares[-1]:.3f}")
    pictures.curves("The centre on its way", "commit", "held-out loss", losses)
    counted = Counter(staleness)
    by_staleness = {f"{each} updates": float(counted[each]) for each in sorted(counted)}
    pictures.bars("Staleness in DynSGD", "commits", by_staleness)


if __name__ == "__main__":
    app.run(main)
