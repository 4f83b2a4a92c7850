"""Wrong replicators."""

from tests.examples.mutations import Mutation

MUTATIONS = (
    Mutation(
        "gradients pass back through the sum, from all replicas",
        "algorithm.py",
        "sums = self._all_sum(np.stack([gradient, gradient * self._normal]).sum(axis=1))",
        "sums = np.stack([gradient, gradient * self._normal]).sum(axis=1)",
    ),
    Mutation(
        "wrapped optimizers take the mean of all replicas' gradients",
        "algorithm.py",
        "self.all_sum(gradient) / self.num_replicas",
        "gradient",
    ),
    Mutation(
        "replicas have different shares of the batch",
        "models.py",
        "[replica_id::num_replicas]",
        "[::num_replicas]",
    ),
    Mutation(
        "the server applies each gradient that replicas push",
        "replicas.py",
        "self._optimizers[number](self._variables[number], gradient)",
        "self._optimizers[number](self._variables[number], gradient * (gradient[0] > 0))",
    ),
    Mutation(
        "after a kill, replicas go on with the batch after the checkpoint",
        "algorithm.py",
        "islice(inputs, len(trained.outputs), steps)",
        "islice(inputs, 0, steps - len(trained.outputs))",
    ),
)
