"""Run it: python -m examples.systems.tf_on_spark --lp_launch_type=local_mp."""

from dataclasses import replace

from absl import app, flags

from examples._shared import digits, networks
from examples._shared.checks import QUICK, done
from examples.systems.tf_on_spark import claims
from examples.systems.tf_on_spark.job import Faults, Job
from examples.systems.tf_on_spark.main_fun import Args, infer
from examples.systems.tf_on_spark.program import run

SPARK = flags.DEFINE_bool("spark", False, "Have tasks of Spark push rows, too.")
TORCH = flags.DEFINE_bool("torch", False, "Train by Spark's TorchDistributor, too.")

WIDTHS = (64, 10)
PARTITIONS = 9


def main(_: list[str]) -> None:
    """Train on pushed rows and on read rows, stop early, infer, and run with a worker missing."""
    examples, held_out = digits.load()
    partitions = [examples[i::PARTITIONS] for i in range(PARTITIONS)]
    args = Args(WIDTHS, networks.first_parameters(WIDTHS))
    job = Job(args, partitions, epochs=4 if QUICK.value else 12)

    pushed_run = run(replace(job, faults=Faults(kill_at=20)))
    claims.check_once(pushed_run)
    claims.check_bounded(pushed_run)
    claims.check_same_as_alone(pushed_run, "feeders push the rows")
    claims.check_accuracy(pushed_run, held_out, "feeders push the rows")

    read_run = run(replace(job, is_pushed=False))
    claims.check_planned(read_run)
    claims.check_same_as_alone(read_run, "workers read the rows themselves")
    claims.check_accuracy(read_run, held_out, "workers read the rows themselves")

    claims.check_enough(run(replace(job, args=replace(args, enough_at=40), epochs=1000)))

    trained = replace(args, parameters=pushed_run.parameters)
    claims.check_inferred(run(replace(job, args=trained, main_fun=infer, answers=True, epochs=1)))

    missing = replace(job, workers=3, is_pushed=False, limit_s=3, faults=Faults(absent=2))
    claims.check_absent(missing)

    if SPARK.value:
        from examples.systems.tf_on_spark.spark import run_by_spark

        by_spark = run_by_spark(job)
        claims.check_once(by_spark)
        claims.check_same_as_alone(by_spark, "tasks of Spark push the rows of an RDD")
    if TORCH.value:
        from examples.systems.tf_on_spark.torch_distributor import train_by_torch

        claims.check_torch(read_run, train_by_torch(job))
    done()


if __name__ == "__main__":
    app.run(main)
