"""Wrong pipelines of minibatches."""

from tests.examples.mutations import Mutation

MUTATIONS = (
    Mutation(
        "a minibatch goes backward with the weights with which it went forward",
        "algorithm.py",
        "return self.network.backward(self.versions[used], values, gradient)",
        "return self.network.backward(self.weights, values, gradient)",
    ),
    Mutation(
        "versions that no minibatch needs are dropped",
        "algorithm.py",
        "for v, w in self.versions.items() if v in stashed",
        "for v, w in self.versions.items()",
    ),
    Mutation(
        "as many minibatches are in flight as keep all stages busy, and no more",
        "algorithm.py",
        "math.ceil(sum(part.replicas for part in plan[stage:]) / plan[stage].replicas)",
        "math.ceil(sum(part.replicas for part in plan[stage:]) / plan[stage].replicas) + 1",
    ),
    Mutation(
        "a stage has several minibatches in flight",
        "algorithm.py",
        "math.ceil(sum(part.replicas for part in plan[stage:]) / plan[stage].replicas)",
        "1",
    ),
    Mutation(
        "replicas average their gradients",
        "stage.py",
        "np.mean(gradients, axis=0)",
        "np.sum(gradients, axis=0)",
    ),
    Mutation(
        "the planner counts the all-reduce",
        "algorithm.py",
        "2 * (replicas - 1) / replicas * sum",
        "0 * sum",
    ),
    Mutation(
        "replicas share the work of a stage",
        "algorithm.py",
        "all_reduced / bandwidth) / replicas",
        "all_reduced / bandwidth)",
    ),
    Mutation(
        "an all-reduce takes less time on a faster network",
        "algorithm.py",
        "all_reduced / bandwidth)",
        "all_reduced * bandwidth)",
    ),
    Mutation(
        "the planner counts the transfers between stages",
        "algorithm.py",
        "transfer_s = 2 * profile.outputs[begin - 1] / bandwidth",
        "transfer_s = 0.0",
    ),
    Mutation(
        "after a kill, minibatches in flight have the weights with which they went forward",
        "stage.py",
        "self._layers.n_resumed = n_done",
        "self._layers.versions = dict.fromkeys(self._layers.versions, self._layers.weights)"
        "; self._layers.n_resumed = n_done",
    ),
)
