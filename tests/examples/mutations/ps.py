"""Wrong parameter servers."""

from tests.examples.mutations import Mutation

MUTATIONS = (
    Mutation(
        "shards in step apply the mean of the gradients, not their sum",
        "shards.py",
        "self._learning_rate * sum(gradients) / len(gradients)",
        "self._learning_rate * sum(gradients)",
    ),
)
