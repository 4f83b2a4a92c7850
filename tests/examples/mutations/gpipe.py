"""Wrong pipelines of micro-batches."""

from tests.examples.mutations import Mutation

MUTATIONS = (
    Mutation(
        "a micro-batch goes forward before the one before it has come back",
        "algorithm.py",
        'return forward + [("backward", number) for _, number in reversed(forward)]',
        'return [(kind, m) for _, m in forward for kind in ("forward", "backward")]',
    ),
    Mutation(
        "the gradient is the mean of the micro-batches' gradients, not their sum",
        "stage.py",
        "gradient = layers.gradient / run.micro_batches",
        "gradient = layers.gradient",
    ),
    Mutation(
        "gradients of all micro-batches are added up",
        "algorithm.py",
        "self.gradient += by_parameters",
        "self.gradient[:] = by_parameters",
    ),
    Mutation(
        "a stage keeps only the inputs of a micro-batch",
        "algorithm.py",
        "self._kept[number] = [inputs]",
        "pass",
    ),
    Mutation(
        "the variance of the stages' costs is least",
        "algorithm.py",
        "squares + sum(costs[begin:end]) ** 2",
        "squares + sum(costs[begin:end])",
    ),
    Mutation(
        "rows of all micro-batches are used",
        "stage.py",
        "self._problem.batch(step).parts(micro_batches)",
        "self._problem.batch(step)[:60].parts(micro_batches)",
    ),
    Mutation(
        "stages that go on after a kill have the parameters that they have saved",
        "stage.py",
        "last = me.load(version=begins_at)",
        "last = [one._replace(parameters=self._parameters) for one in me.load(version=begins_at)]",
    ),
    Mutation(
        "a stage is killed",
        "stage.py",
        "lp.testing.crash()",
        "pass",
    ),
)
