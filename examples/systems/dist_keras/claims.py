"""Checks of the claims of dist-keras about its rules, on the results of workers."""

from collections import Counter
from collections.abc import Mapping, Sequence

import numpy as np

from examples._shared.checks import check
from examples._shared.problem import Problem
from examples.systems.dist_keras.algorithm import RULES
from examples.systems.dist_keras.oracle import Replayed
from examples.systems.dist_keras.worker import Trained

TOLERANCE = 1e-12

Workers = Sequence[Trained]  # the results of all workers for one rule


def check_counted(problem: Problem, trained: Mapping[str, Workers]) -> None:
    """Check that servers that were killed have each commit exactly once."""
    records = [(name, of_rule[0].centre.record) for name, of_rule in trained.items()]
    counted = Counter((name, commit.worker) for name, record in records for commit in record)
    workers = range(problem.workers)
    expected = {(n, i): problem.steps // RULES[n].window for n in RULES for i in workers}
    attempt = min(of_rule[0].attempt for of_rule in trained.values())
    check(
        counted == expected and attempt > 1,
        "servers that are killed lose no commit, and count none twice",
        f"{counted.total()} commits of {sum(expected.values())}, attempt {attempt} of all servers",
    )


def check_replay(name: str, workers: Workers, alone: Replayed) -> None:
    """Check that the centre and the workers' replicas are those of the formula."""
    centres, replicas = alone
    arrays = [workers[0].centre.parameters, *(worker.replica for worker in workers)]
    pairs = zip(arrays, [centres[-1], *replicas], strict=True)
    difference = max(float(np.abs(array - other).max()) for array, other in pairs)
    check(
        difference <= TOLERANCE,
        f"{name} does what its formula says, commit by commit in the recorded order",
        f"{len(workers[0].centre.record)} commits; the centre and {len(workers)} replicas differ by at most"
        f" {difference:.0e}",
    )
