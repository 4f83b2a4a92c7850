"""Run it: python -m examples.systems.elephas --lp_launch_type=local_mp."""

from absl import app, flags

from examples._shared import digits, networks
from examples._shared.checks import QUICK, done
from examples.systems.elephas import claims
from examples.systems.elephas.algorithm import Model, in_batches, rounds
from examples.systems.elephas.oracle import average_alone
from examples.systems.elephas.program import fit
from examples.systems.elephas.spark import through_spark
from examples.systems.elephas.worker import Faults

SPARK = flags.DEFINE_bool("spark", False, "Train on data from Spark, too.")

WIDTHS = (64, 10)
WORKERS = 3
BATCH_SIZE = 48
EPOCHS = 16
KILLS = Faults(kills=True)
KILLS_AND_BAD_UPDATES = Faults(kills=True, bad_every=10)


def main(_: list[str]) -> None:
    """Train in each mode, while workers and drivers are killed, and check what it promises."""
    examples, held_out = digits.load()
    lists = [examples[i::WORKERS] for i in range(WORKERS)]
    partitions = in_batches(lists, BATCH_SIZE)
    steps = EPOCHS * partitions[0].n_batches
    models = [
        Model(WIDTHS, networks.first_parameters(WIDTHS, seed), 0.5, seed)
        for seed in range(1 if QUICK.value else 5)
    ]

    twice = [*models, models[0]]
    for frequency in ("epoch",) if QUICK.value else ("epoch", "batch"):
        result = fit(twice, partitions, steps, frequency, "synchronous", KILLS)
        of_worker = rounds(frequency, steps, partitions[0].n_batches)
        alone = [average_alone(model, partitions, of_worker) for model in models]
        claims.check_averages(result, alone, frequency)
        claims.check_same_bits(result)
        claims.check_accuracy("synchronous", result, twice, held_out)

    result = fit(models, partitions, steps, "batch", "asynchronous", KILLS_AND_BAD_UPDATES)
    claims.check_none_lost(result, models)
    claims.check_refused(result, len(models) * WORKERS * steps // KILLS_AND_BAD_UPDATES.bad_every)
    claims.check_accuracy("asynchronous", result, models, held_out)

    result = fit(models, partitions, steps, "batch", "hogwild", KILLS)
    claims.check_lost_are_counted(result, models)
    claims.check_accuracy("hogwild", result, models, held_out)

    if SPARK.value:
        from_spark = in_batches(through_spark(lists), BATCH_SIZE)
        result_by_spark, result_by_list = (
            fit(models[:1], data, steps, "epoch", "synchronous")
            for data in (from_spark, partitions)
        )
        claims.check_spark(result_by_spark, result_by_list)
    done()


if __name__ == "__main__":
    app.run(main)
