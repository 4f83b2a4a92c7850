"""Wrong optimizers of dist-keras."""

from tests.examples.mutations import Mutation

MUTATIONS = (
    Mutation(
        "DynSGD divides a commit by 1 + staleness",
        "algorithm.py",
        "super().merge(delta / (staleness + 1), staleness)",
        "super().merge(delta, staleness)",
    ),
    Mutation(
        "ADAG divides a commit by the window",
        "algorithm.py",
        "super().round(pull) / self.window",
        "super().round(pull) / (2 * self.window)",
    ),
    Mutation(
        "EAMSGD's velocity keeps its sign",
        "algorithm.py",
        "ahead = MOMENTUM * self.velocity",
        "ahead = -MOMENTUM * self.velocity",
    ),
    Mutation(
        "averaging takes the mean of all workers",
        "algorithm.py",
        "np.sum(self.waiting, axis=0) / self.workers",
        "self.waiting[0]",
    ),
    Mutation(
        "AEASGD's workers move towards the centre, too",
        "algorithm.py",
        "self.parameters = self.parameters - elastic",
        "pass",
    ),
    Mutation(
        "DOWNPOUR's workers go on from the centre that they pull",
        "algorithm.py",
        "self.parameters = begin",
        "pass",
    ),
)
