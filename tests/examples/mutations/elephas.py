"""Wrong modes of Elephas."""

from tests.examples.mutations import Mutation

MUTATIONS = (
    Mutation(
        "in synchronous mode the driver adds the mean of the updates, not their sum",
        "driver.py",
        "mean = own / len(deltas)",
        "mean = own",
    ),
    Mutation(
        "hogwild loses updates, and asynchronous mode doesn't",
        "driver.py",
        '"hogwild": Hogwild',
        '"hogwild": Driver',
    ),
    Mutation(
        "asynchronous mode holds the lock between reading and writing",
        "driver.py",
        '"asynchronous": Driver',
        '"asynchronous": Hogwild',
    ),
    Mutation(
        "a worker's next attempt goes on with the update that the driver has not taken",
        "worker.py",
        "range(driver.clock(worker), len(rounds))",
        "range(len(rounds))",
    ),
    Mutation(
        "a worker trains on its own partition",
        "program.py",
        "lp.PyNode(work, partition,",
        "lp.PyNode(work, partitions[0],",
    ),
)
