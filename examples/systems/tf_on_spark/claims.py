"""What the system promises, checked on what workers and feeders have returned."""

from collections import Counter

import launchpad as lp
from examples._shared import networks
from examples._shared.checks import check
from examples._shared.digits import Array, Digits
from examples.systems.tf_on_spark.algorithm import Id, Row
from examples.systems.tf_on_spark.job import Job
from examples.systems.tf_on_spark.oracle import train_alone
from examples.systems.tf_on_spark.program import Ran, make_program

WANTED_ACCURACY = 0.9
TOLERANCE = 1e-12


def check_once(ran: Ran) -> None:
    """The rows of all steps are those of all epochs, as multisets; if some were to be killed, they were."""
    counts = Counter(id_ for step in ran.workers[0].ledger for ids in step for id_ in ids)
    attempts = [each.attempt for each in ran.workers], [each.attempt for each in ran.feeders]
    killed = ran.job.faults.kill_at is not None
    again = sum(each.redelivered for each in stats(ran)), put(ran) - ran.job.n_rows
    check(
        counts == Counter(list(rows_of(ran.job)))
        and (not killed or (min(attempts[0]), attempts[1][0], min(again) > 0) == (2, 2, True)),
        "each row is in the model once per epoch"
        + (", although all workers and a feeder are killed" if killed else ""),
        f"{len(counts)} of {ran.job.n_rows} rows; {again[0]} were delivered again, {again[1]} pushed again",
    )


def check_bounded(ran: Ran) -> None:
    """No queue took more than it may, and one was full at some time."""
    most = [each.most_waiting for each in stats(ran)]
    check(
        max(most) == ran.job.maxsize,
        f"feeders wait while {ran.job.maxsize} rows do,"
        " not counting rows that come back from killed workers",
        f"at most {most}, of {put(ran)} rows",
    )


def check_same_as_alone(ran: Ran, which: str) -> None:
    """Nothing else is in the model than the gradients of these rows, in this order."""
    found = rows_of(ran.job)
    steps = [[[found[id_] for id_ in ids] for ids in step] for step in ran.workers[0].ledger]
    alone = train_alone(ran.job.args, steps)
    check(
        bool((ran.parameters == alone).all()),
        f"rows {which}: they train what one process learns from them, bit for bit",
        f"{(ran.parameters == alone).sum()} of {len(alone)} parameters are equal, after {len(steps)} steps",
    )


def check_planned(ran: Ran) -> None:
    """Workers that read have each the batches that the partitions' order gives."""
    size = ran.job.args.batch_size
    read = [
        [id_ for step in ran.workers[0].ledger for id_ in step[worker]]
        for worker in range(ran.job.workers)
    ]
    sizes = {len(ids) for step in ran.workers[0].ledger[:10] for ids in step}
    planned = [[row.id for row in ran.job.rows_of(worker)] for worker in range(ran.job.workers)]
    check(
        read == planned and sizes == {size},
        f"the same main_fun reads by itself, in order, in batches of {size}",
        f"{' + '.join(str(len(ids)) for ids in read)} rows",
    )


def check_accuracy(ran: Ran, held_out: Digits, how: str) -> None:
    """Enough of the digits that were held out are read correctly."""
    accuracy = networks.accuracy(ran.job.args.widths, ran.parameters, held_out)
    check(
        accuracy >= WANTED_ACCURACY,
        f"rows {how}: at least {WANTED_ACCURACY} of {len(held_out)} held-out digits are read",
        f"{accuracy:.3f}",
    )


def check_enough(ran: Ran) -> None:
    """Nothing was pushed after it was enough, and all feeders were told."""
    job, args = ran.job, ran.job.args
    assert args.enough_at is not None  # a job that ends early
    # A worker takes `enough_at` batches, whole ones, and cancels. What its queue has accepted by then was
    # taken or waits, and it has room for `maxsize`: what came back from a killed worker would come on top,
    # but none is killed. A row more than that came in after a cancel, whoever was faster until then.
    most = job.workers * (args.enough_at * args.batch_size + job.maxsize)
    told = [fed.told_at for fed in ran.feeders if fed.told_at is not None]
    late = max(told, default=0) - max(each.terminated_at or 0 for each in ran.workers)
    check(
        len(told) == len(ran.feeders)
        and len(stats(ran)) == job.workers
        and all(each.is_cancelled for each in stats(ran))
        and put(ran) <= most < job.n_rows,
        "workers that need no more rows end their feeders, whatever these still have",
        f"{put(ran)} of {job.n_rows} rows were pushed, and {most} may be, trained on or waiting; the last"
        f" feeder was told {late:.3f} s later, by the clocks of the hosts",
    )


def check_inferred(ran: Ran) -> None:
    """What has come back for a partition is what one process infers, in the partition's order."""
    job, args = ran.job, ran.job.args
    results = sorted(each for fed in ran.feeders for each in fed.results.items())
    expected = []
    for number, digits in enumerate(job.partitions):
        scores = networks.forward(args.widths, args.parameters, digits.images)[-1]
        expected.append((number, list(enumerate(scores.argmax(axis=1).tolist()))))
    check(
        results == expected,
        "each row has one result, and results come in the order of the partition's rows",
        f"{sum(len(found) for _, found in results)} results of {len(results)} partitions",
    )


def check_absent(job: Job) -> None:
    """Run a job of which a worker is absent, until those who have come give up."""
    try:
        lp.run(make_program(job), preload=["numpy"])
        said = "nothing"
    except lp.ProgramFailed as failed:
        said = failed.outcome.cause.partition(": ")[2]
    check_named(job, said)


def check_named(job: Job, said: str) -> None:
    """When the time is up, those who have come are told who has not."""
    everyone = {"ps 0", *(f"worker {i}" for i in range(job.workers))}
    missing = f"worker {job.faults.absent}"
    absent, _, registered = said.partition("registered within")
    found = {name for name in everyone if name in absent}, {n for n in everyone if n in registered}
    check(
        missing in found[0] and found[0] ^ found[1] == everyone,
        "a wait that times out names the absent nodes",
        said,
    )


def check_torch(ran: Ran, parameters: Array) -> None:
    """Ranks of torch.distributed that Spark starts learn the same from the same batches."""
    difference = float(abs(ran.parameters - parameters).max())
    check(
        difference <= TOLERANCE,
        f"pyspark's TorchDistributor trains the same model, to {TOLERANCE:g}",
        f"largest difference {difference:.0e}",
    )


def rows_of(job: Job) -> dict[Id, Row]:
    """Return the rows of all epochs."""
    return {row.id: row for worker in range(job.workers) for row in job.rows_of(worker)}


def stats(ran: Ran) -> list[lp.QueueStats]:
    """Return what the workers' queues have counted."""
    return [each.stats for each in ran.workers if each.stats is not None]


def put(ran: Ran) -> int:
    """Return how many rows were pushed."""
    return sum(each.put for each in stats(ran))
