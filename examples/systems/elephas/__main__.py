"""Run it: python -m examples.systems.elephas --lp_launch_type=local_mp."""

from dataclasses import replace

from absl import app, flags

from examples._shared import digits, pictures
from examples._shared.checks import QUICK, check, done, phase
from examples._shared.problem import Problem
from examples._shared.spark import through_spark
from examples.systems.elephas import claims
from examples.systems.elephas.algorithm import partitions_of
from examples.systems.elephas.oracle import average_alone
from examples.systems.elephas.program import fit

SPARK = flags.DEFINE_bool("spark", False, "Train on data from Spark, too.")
WORKERS = flags.DEFINE_integer("workers", 3, "How many workers have a partition.", 2)
EPOCHS = flags.DEFINE_integer("epochs", 16, "How often each goes through its partition.", 1)


def main(_: list[str]) -> None:
    """Train in each mode, while a worker and the driver are killed, and check what it promises."""
    training, held_out = digits.load()
    problem = Problem(training, workers=WORKERS.value)
    n_batches = partitions_of(problem)[0].n_batches
    problem = replace(problem, steps=EPOCHS.value * n_batches)
    partitions = partitions_of(problem)
    losses = {}
    for every, steps in [("epoch", n_batches), ("batch", 1)][: 1 if QUICK.value else 2]:
        phase(f"synchronous, averaged after each {every}; then with kills")
        undisturbed = fit(problem, "synchronous", steps)
        killed = fit(problem, "synchronous", steps, dies=True)
        alone = average_alone(problem, partitions, steps)
        claims.check_averages(undisturbed, killed, alone, every)
        claims.check_accuracy("synchronous", killed, problem, held_out)
    for mode in ("asynchronous", "hogwild"):
        phase(f"{mode}, with an exchange after each batch; a worker and the driver are killed")
        result = fit(problem, mode, dies=True)
        claims.check_counts(mode, result, problem)
        losses[mode] = claims.losses(result, problem, held_out)
        claims.check_accuracy(mode, result, problem, held_out)
    if SPARK.value:
        phase("synchronous, on the partitions of an RDD")
        from_spark = through_spark([each.problem.training for each in partitions])
        by_spark = fit(problem, "synchronous", 1, partitions_of(problem, from_spark))
        are_equal = by_spark.parameters == fit(problem, "synchronous").parameters
        claim = "partitions of an RDD train the same model as a list of them, bit for bit"
        check(all(are_equal), claim, f"{sum(are_equal)} of {len(are_equal)} parameters are equal")
    pictures.curves("Loss of held-out rows", "updates of each worker", "held-out loss", losses)
    done()


if __name__ == "__main__":
    app.run(main)
