"""Wrong parameter servers."""

from tests.examples.mutations import Mutation

MUTATIONS = (
    Mutation(
        "shards in step apply the mean of the gradients, not their sum",
        "shards.py",
        "self._learning_rate * sum(gradients) / len(gradients)",
        "self._learning_rate * sum(gradients)",
        ("--mode=sync",),
    ),
    Mutation(
        "a shard in mode async applies its share of the mean",
        "shards.py",
        "self._learning_rate * gradient / len(self._state.applied)",
        "self._learning_rate * gradient",
        ("--mode=async",),
    ),
    Mutation(
        "in mode ssp a worker that is two steps ahead waits",
        "shards.py",
        "slack: ClassVar[float] = 2",
        'slack: ClassVar[float] = float("inf")',
        ("--mode=ssp",),
    ),
    Mutation(
        "in mode async no worker waits",
        "shards.py",
        'slack: ClassVar[float] = float("inf")',
        "slack: ClassVar[float] = 0",
        ("--mode=async",),
    ),
    Mutation(
        "a worker goes on with the parameters that it gets",
        "worker.py",
        "parameters = np.concatenate(answers)",
        "np.concatenate(answers)",
        ("--mode=sync",),
    ),
    Mutation(
        "a gradient that is pushed again is not applied again",
        "shards.py",
        "            if is_new:\n",
        "            if True:\n",
        ("--mode=async", "--kill_shard_at=150"),
    ),
)
