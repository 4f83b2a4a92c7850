"""Run it: python -m examples.systems.tf_on_spark --lp_launch_type=local_mp."""

from dataclasses import replace

from absl import app, flags

from examples._shared import digits, pictures
from examples._shared.checks import check_few_lines_differ, done, phase
from examples._shared.networks import Dense
from examples.systems.tf_on_spark import claims
from examples.systems.tf_on_spark.main_fun import infer, take_some, train, train_alone
from examples.systems.tf_on_spark.nodes import Job

WORKERS = flags.DEFINE_integer("workers", 2, "How many workers.")
EPOCHS = 4


def main(_: list[str]) -> None:
    """Train on pushed rows and on read rows, stop early, infer, and run with a worker missing."""
    training, held_out = digits.load()
    rows = list(zip(training.inputs, training.targets.tolist(), strict=True))
    partitions = [rows[i::9] for i in range(9)]
    network = Dense((64, 10))
    job = Job(train, network, partitions, network.first_parameters(), EPOCHS)
    job = replace(job, workers=WORKERS.value, feeders=WORKERS.value + 1)

    phase("The change that a user makes")
    claim = "a program for one process becomes one for a cluster"
    check_few_lines_differ(claim, 9, train_alone, train)

    phase(f"Feeders push; then {job.workers} workers and a feeder are killed")
    pushed = claims.run(replace(job, kill_at=20))
    claims.check_rows(pushed)
    claims.check_killed(pushed)
    claims.check_bounded(pushed)
    losses = {pushed.how: claims.check_learned(pushed, held_out)}

    phase("Workers read the rows themselves")
    read = claims.run(replace(job, is_pushed=False))
    claims.check_rows(read)
    losses[read.how] = claims.check_learned(read, held_out)
    pictures.curves("Losses of workers", "step", "loss", losses)

    phase("Workers need only the first 40 batches")
    few = replace(job, main_fun=take_some, args=40, epochs=1000)
    claims.check_enough(claims.run(few))

    phase("Inference")
    trained, _ = pushed.workers[0].result
    claims.check_inferred(claims.run(replace(job, main_fun=infer, parameters=trained, epochs=1)))

    phase("A worker never comes. The others give up after 3 s, with tracebacks")
    claims.check_absent(replace(job, is_pushed=False, limit_s=3, absent=1))
    done()


if __name__ == "__main__":
    app.run(main)
