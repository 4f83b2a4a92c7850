"""Wrong jobs of BigDL."""

from tests.examples.mutations import Mutation

MUTATIONS = (
    Mutation(
        "the second job has a momentum",
        "algorithm.py",
        "velocity = self.momentum * velocity + gradient",
        "velocity = gradient",
    ),
    Mutation(
        "sums are added up in pairs of pairs",
        "algorithm.py",
        "half = len(arrays) // 2",
        "half = len(arrays) - 1",
    ),
    Mutation(
        "a peer sends each block once",
        "executor.py",
        "futures[b].result() if b in futures",
        "(futures[b].result(), self._peers[b.task.executor].get(b))[1] if b in futures",
    ),
    Mutation(
        "the driver dispatches all jobs of a group at once",
        "algorithm.py",
        "size = 2 * group if group else 1",
        "size = 2 if group else 1",
    ),
)
