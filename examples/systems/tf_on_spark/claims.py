"""Checks of the system's promises, on the results of workers and feeders."""

from collections.abc import Sequence
from itertools import product
from typing import NamedTuple

import launchpad as lp
from examples._shared import networks
from examples._shared.checks import check
from examples._shared.data import Data
from examples.systems.tf_on_spark.algorithm import Id
from examples.systems.tf_on_spark.main_fun import BATCH_SIZE, train_alone
from examples.systems.tf_on_spark.nodes import Job, Worked
from examples.systems.tf_on_spark.program import make_program

WANTED_ACCURACY = 0.9
TOLERANCE = 1e-12


class Ran(NamedTuple):
    """A job, the results of its workers, and the last attempts of its feeders."""

    job: Job
    workers: Sequence[Worked]
    feeders: Sequence[int]

    @property
    def how(self) -> str:
        return "feeders push the rows" if self.job.is_pushed else "workers read the rows themselves"

    @property
    def n_rows(self) -> int:
        return self.job.epochs * sum(map(len, self.job.partitions))

    @property
    def queues(self) -> list[lp.QueueStats]:
        return [worker.queue for worker in self.workers if worker.queue]


def run(job: Job) -> Ran:
    """Run a job on a cluster of its own."""
    results = lp.run(make_program(job), preload=["numpy"])
    return Ran(job, results["worker"], results.get("feeder", []))


def ids_of(job: Job, worker: int) -> list[Id]:
    """Return the ids of a worker's rows. Partitions go to feeders, and feeders to workers, in turn."""
    numbers = [n for n in range(len(job.partitions)) if n % job.feeders % job.workers == worker]
    parts = product(range(job.epochs), numbers)
    return [(epoch, n, i) for epoch, n in parts for i in range(len(job.partitions[n]))]


def check_rows(ran: Ran) -> None:
    """Check that each worker got each of its rows once per epoch. Feeders of a worker push at once."""
    workers = range(ran.job.workers)
    expected = [ids_of(ran.job, worker) for worker in workers]
    handled = [[id_ for step in ran.workers[0].ledger for id_ in step[w]] for w in workers]
    if ran.job.is_pushed:
        handled = list(map(sorted, handled))
    order = "in any order" if ran.job.is_pushed else "in order"
    claim = f"if {ran.how}, each row is in the model once per epoch, {order}"
    check(handled == expected, claim, f"{sum(map(len, handled))} of {ran.n_rows} rows")


def check_killed(ran: Ran) -> None:
    """Check that there were kills to survive."""
    attempts = {worker.attempt for worker in ran.workers}
    n_again = sum(queue.redelivered for queue in ran.queues)
    n_pushed_again = sum(queue.put for queue in ran.queues) - ran.n_rows
    check(
        attempts == {2} and ran.feeders[0] == 2 and n_again > 0 and n_pushed_again > 0,
        "all this holds although all workers and a feeder are killed",
        f"{n_again} rows were delivered again, {n_pushed_again} pushed again",
    )


def check_bounded(ran: Ran) -> None:
    """Check that no queue held more rows than it may, and that one was full at some time."""
    most = max(queue.most_waiting for queue in ran.queues)
    claim = f"a feeder waits while {ran.job.maxsize} rows wait in its worker's queue"
    check(most == ran.job.maxsize, claim, f"at most {most} waited, of {ran.n_rows} rows")


def check_learned(ran: Ran, held_out: Data) -> list[float]:
    """Check that the model is what the user's own program makes of the same rows. Return its losses."""
    steps = [[id_ for ids in step for id_ in ids] for step in ran.workers[0].ledger]
    batches = [[ran.job.partitions[n][i] for _, n, i in ids] for ids in steps if ids]
    alone, losses = train_alone(ran.job.args, batches)
    parameters, _ = ran.workers[0].result
    difference = float(abs(parameters - alone).max())
    claim = f"if {ran.how}, workers learn what one process learns from them, to {TOLERANCE:g}"
    fell = f"the loss fell from {losses[0]:.2f} to {losses[-1]:.2f} in {len(batches)} steps"
    check(difference <= TOLERANCE, claim, f"largest difference {difference:.0e}; {fell}")
    accuracy = networks.accuracy(ran.job.args, parameters, held_out)
    claim = f"if {ran.how}, at least {WANTED_ACCURACY} of {len(held_out)} held-out digits are recognised"
    check(accuracy >= WANTED_ACCURACY, claim, f"{accuracy:.3f}")
    return losses


def check_enough(ran: Ran) -> None:
    """Check that no row came in after the workers had enough.

    A worker takes some whole batches, then cancels its queue. The rows that the queue has accepted by then
    were taken, or wait, and at most `maxsize` of them wait. One row more came in after a cancel.
    """
    n_pushed = sum(queue.put for queue in ran.queues)
    most = ran.job.workers * (ran.job.args * BATCH_SIZE + ran.job.maxsize)
    are_cancelled = all(queue.is_cancelled for queue in ran.queues)
    check(
        are_cancelled and n_pushed <= most < ran.n_rows,
        "when workers need no more rows, they make their feeders stop, however many rows are left",
        f"{n_pushed} of {ran.n_rows} rows were pushed, and the limit is {most} (taken or waiting)",
    )


def check_inferred(ran: Ran) -> None:
    """Check that the results for a partition are those of one process, in the partition's order."""
    results = [pair for worker in ran.workers for pair in worker.result]
    results.sort(key=lambda pair: pair[0][1])  # by partition; its results stay in their order
    expected = []
    for number, partition in enumerate(ran.job.partitions):
        for i, (image, _) in enumerate(partition):
            scores = ran.job.args.forward(ran.job.parameters, image[None])[-1]
            expected.append(((0, number, i), int(scores.argmax())))
    claim = "each row has one result, and results come in the order of the partition's rows"
    measured = f"{len(results)} results of {len(ran.job.partitions)} partitions"
    check(results == expected, claim, measured)


def check_absent(job: Job) -> None:
    """Run a job with an absent worker, until the nodes that have come give up."""
    message = "nothing"
    try:
        lp.run(make_program(job), preload=["numpy"])
    except lp.ProgramFailed as failed:
        message = failed.outcome.cause.partition(": ")[2]
    there = ", ".join(["ps", *(f"worker {i}" for i in range(job.workers))])
    is_right = message.endswith(f" s: worker {job.workers}; registered: {there}")
    check(is_right, "a wait that times out names the absent nodes", message)
