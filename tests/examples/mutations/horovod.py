"""Wrong data parallelism."""

from tests.examples.mutations import Mutation

ONCE = ("--ranks=4",)

MUTATIONS = (
    Mutation(
        "backward goes on while a bucket is under way",
        "algorithm.py",
        "        self._n_sent += 1\n        self._bucket = []\n",
        "        self._n_sent += 1\n        self._bucket = []\n        self._under_way[-1]()\n"
        "        self._under_way = []\n",
        ONCE,
    ),
    Mutation(
        "the thread of communication averages, and not backward's",
        "algorithm.py",
        "average = self._communication.submit(self._average, number, self._bucket)",
        "average = self._communication.submit(int, self._average(number, self._bucket))",
        ONCE,
    ),
    Mutation(
        "a full bucket leaves, although backward still runs",
        "algorithm.py",
        "for each in self._bucket) >= self._fusion_bytes:",
        "for each in self._bucket) < 0:",
        ONCE,
    ),
    Mutation(
        "small tensors wait for others",
        "algorithm.py",
        "for each in self._bucket) >= self._fusion_bytes:",
        "for each in self._bucket) >= 0:",
        ONCE,
    ),
    Mutation(
        "ranks begin with the parameters of rank 0",
        "rank.py",
        "begin, parameters, velocity = group.broadcast(state)",
        "begin, parameters, velocity = state",
        ONCE,
    ),
    Mutation(
        "the checkpoint has the momentum",
        "rank.py",
        "me.save((step + 1, parameters, velocity), keep=1)",
        "me.save((step + 1, parameters, 0 * velocity), keep=1)",
        ONCE,
    ),
    Mutation(
        "ranks follow the mean of their gradients, not the sum",
        "rank.py",
        'op="mean"',
        'op="sum"',
        ONCE,
    ),
    Mutation(
        "each rank takes its own slice of the batch",
        "rank.py",
        "problem.slice(step, group.rank)",
        "problem.slice(step, 0)",
        ONCE,
    ),
)
