"""Wrong summation services."""

from tests.examples.mutations import Mutation

MUTATIONS = (
    Mutation(
        "forward waits for the sums of each layer, not for those of all layers",
        "worker.py",
        "            if step:\n                self._update(i)\n",
        "            if step and i == 0:\n                list(map(self._update, range(len(layers))))\n",
    ),
    Mutation(
        "gradients of the first layer overtake others",
        "algorithm.py",
        "urgency = each.layer if self._by_priority else 0",
        "urgency = -each.layer if self._by_priority else 0",
    ),
    Mutation(
        "there is a limit to the bytes under way",
        "algorithm.py",
        "expected > self._credit",
        "expected < 0",
    ),
    Mutation(
        "large layers are cut into partitions",
        "placement.py",
        "PARTITION_BYTES // NUMBER_BYTES",
        "100 * PARTITION_BYTES // NUMBER_BYTES",
    ),
    Mutation(
        "shares keep all links equally busy",
        "placement.py",
        "return [(n - k) / total] * n + [2 * (n - 1) / total] * k",
        "return [1 / (n + k)] * (n + k)",
    ),
    Mutation(
        "workers follow the mean of their gradients, not the sum",
        "worker.py",
        "total / self._problem.workers",
        "total",
    ),
    Mutation(
        "a server adds up in the workers' order",
        "server.py",
        "(pushed[i] for i in range(self._n_workers))",
        "(pushed[i] for i in reversed(range(self._n_workers)))",
    ),
    Mutation(
        "a server that is started again has the gradients that workers have kept",
        "server.py",
        "self.push(worker, step, partition, gradient)",
        "self.push(worker, step, partition, 0 * gradient)",
    ),
)
