"""Checks of the system's promises, on the results of workers and feeders."""

from collections import Counter

import launchpad as lp
from examples._shared import networks
from examples._shared.checks import check
from examples._shared.data import Array, Data
from examples.systems.tf_on_spark.algorithm import Id, Row
from examples.systems.tf_on_spark.job import Job
from examples.systems.tf_on_spark.oracle import train_alone
from examples.systems.tf_on_spark.program import Ran, make_program

WANTED_ACCURACY = 0.9
TOLERANCE = 1e-12


def check_once(ran: Ran) -> None:
    """Check that each row is in the model once per epoch, and that the planned kills have happened."""
    counts = Counter(id_ for step in ran.workers[0].ledger for ids in step for id_ in ids)
    is_right = counts == Counter(list(rows_of(ran.job)))
    claim = "each row is in the model once per epoch"
    n_redelivered = sum(each.redelivered for each in stats(ran))
    n_pushed_again = put(ran) - ran.job.n_rows
    if ran.job.faults.kill_at is not None:
        claim += ", although all workers and a feeder are killed"
        is_right = (
            is_right
            and min(worker.attempt for worker in ran.workers) == 2
            and ran.feeders[0].attempt == 2
            and n_redelivered > 0
            and n_pushed_again > 0
        )
    check(
        is_right,
        claim,
        f"{len(counts)} of {ran.job.n_rows} rows; {n_redelivered} were delivered again,"
        f" {n_pushed_again} pushed again",
    )


def check_bounded(ran: Ran) -> None:
    """Check that no queue held more rows than it may, and that one was full at some time."""
    most = [each.most_waiting for each in stats(ran)]
    check(
        max(most) == ran.job.maxsize,
        f"a feeder waits while {ran.job.maxsize} rows wait in its worker's queue, not counting rows that come"
        " back from killed workers",
        f"at most {most} waited, of {put(ran)} rows",
    )


def check_same_as_alone(ran: Ran, how: str) -> None:
    """Check that the model has the gradients of these rows, in this order, and nothing else."""
    rows = rows_of(ran.job)
    steps = [[[rows[id_] for id_ in ids] for ids in step] for step in ran.workers[0].ledger]
    alone = train_alone(ran.job.args, steps)
    check(
        bool((ran.parameters == alone).all()),
        f"if {how}, workers learn what one process learns from the same rows, bit for bit",
        f"{(ran.parameters == alone).sum()} of {len(alone)} parameters are equal, after {len(steps)} steps",
    )


def check_planned(ran: Ran) -> None:
    """Check that each worker that reads gets its batches in the partitions' order."""
    size = ran.job.args.batch_size
    ids_of_workers = [
        [id_ for step in ran.workers[0].ledger for id_ in step[worker]]
        for worker in range(ran.job.workers)
    ]
    sizes = {len(ids) for step in ran.workers[0].ledger[:10] for ids in step}
    planned = [[row.id for row in ran.job.rows_of(worker)] for worker in range(ran.job.workers)]
    check(
        ids_of_workers == planned and sizes == {size},
        f"if workers read the rows themselves, the same main_fun gets them in order, in batches of {size}",
        f"{' + '.join(str(len(ids)) for ids in ids_of_workers)} rows",
    )


def check_accuracy(ran: Ran, held_out: Data, how: str) -> None:
    """Check that the model recognises enough of the held-out digits."""
    accuracy = networks.accuracy(ran.job.args.widths, ran.parameters, held_out)
    check(
        accuracy >= WANTED_ACCURACY,
        f"if {how}, at least {WANTED_ACCURACY} of {len(held_out)} held-out digits are recognised",
        f"{accuracy:.3f}",
    )


def check_enough(ran: Ran) -> None:
    """Check that no row came in after the workers had enough, and that all feeders were told."""
    job = ran.job
    args = ran.job.args
    assert args.enough_at is not None  # a job that ends early
    # A worker takes `enough_at` whole batches, then cancels its queue. The rows that the queue has accepted
    # by then were taken, or wait, and at most `maxsize` of them wait. (Rows that come back from a killed
    # worker would come on top of that, but no worker is killed here.) So if there is one row more than
    # `most`, it came in after a cancel, whatever the order of events was before.
    most = job.workers * (args.enough_at * args.batch_size + job.maxsize)
    told_at = [fed.told_at for fed in ran.feeders if fed.told_at is not None]
    late = max(told_at, default=0) - max(each.terminated_at or 0 for each in ran.workers)
    check(
        len(told_at) == len(ran.feeders)
        and len(stats(ran)) == job.workers
        and all(each.is_cancelled for each in stats(ran))
        and put(ran) <= most < job.n_rows,
        "when workers need no more rows, they make their feeders stop, however many rows are left",
        f"{put(ran)} of {job.n_rows} rows were pushed, and the limit is {most} (trained on or waiting);"
        f" the last feeder was told {late:.3f} s later, by the clocks of the hosts",
    )


def check_inferred(ran: Ran) -> None:
    """Check that the results for a partition are those of one process, in the partition's order."""
    job = ran.job
    args = ran.job.args
    results = sorted(each for fed in ran.feeders for each in fed.results.items())
    expected = []
    for number, digits in enumerate(job.partitions):
        scores = networks.forward(args.widths, args.parameters, digits.inputs)[-1]
        expected.append((number, list(enumerate(scores.argmax(axis=1).tolist()))))
    check(
        results == expected,
        "each row has one result, and results come in the order of the partition's rows",
        f"{sum(len(pairs) for _, pairs in results)} results of {len(results)} partitions",
    )


def check_absent(job: Job) -> None:
    """Run a job with an absent worker, until the nodes that have come give up."""
    try:
        lp.run(make_program(job), preload=["numpy"])
        message = "nothing"
    except lp.ProgramFailed as failed:
        message = failed.outcome.cause.partition(": ")[2]
    check_named(job, message)


def check_named(job: Job, message: str) -> None:
    """Check that when the time is up, the message names the nodes that have not come."""
    everyone = {"ps 0", *(f"worker {i}" for i in range(job.workers))}
    missing = f"worker {job.faults.absent}"
    first_part, _, second_part = message.partition("registered within")
    absent = {name for name in everyone if name in first_part}
    registered = {name for name in everyone if name in second_part}
    check(
        missing in absent and absent ^ registered == everyone,
        "a wait that times out names the absent nodes",
        message,
    )


def check_torch(ran: Ran, parameters: Array) -> None:
    """Check that ranks of torch.distributed that Spark starts learn the same from the same batches."""
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
    """Return the statistics of the workers' queues."""
    return [each.stats for each in ran.workers if each.stats is not None]


def put(ran: Ran) -> int:
    """Return how many rows were pushed."""
    return sum(each.put for each in stats(ran))
