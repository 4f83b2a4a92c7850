"""A vector in three shards: as one client, and with a part for each."""

import launchpad as lp
import numpy as np

PARTITION = lp.RangePartition(10)


# part: shard
class Shard:
    def __init__(self) -> None:
        me = lp.current()
        low, high = PARTITION.bounds(me.replica_index, me.num_replicas)
        self._weights = np.arange(low, high, dtype=float)

    def pull(self, keys):
        return self._weights[keys]

    def push(self, keys, gradient, *, rate=1.0):
        self._weights[keys] -= rate * gradient

    def step(self, batch, rate):
        return f"{lp.current().name} takes {len(batch)} rows"


# part: use
def use(shards: list[lp.CourierClient[Shard]]) -> None:
    params = lp.sharded(shards, PARTITION)
    print("all:", params.pull(slice(None)))
    keys = np.array([9, 0, 5])
    params.push(keys, np.array([1.0, 2.0, 3.0]), rate=0.5)  # to each shard what is its own
    print("some:", params.pull(keys), "one:", params.pull(9))
    try:
        params.pull([3, 10])
    except IndexError as error:
        print("caught:", error)

    batches = np.array_split(np.zeros((8, 2)), len(shards))
    for answer in lp.scatter(shards).step(lp.parts(batches), 0.1):
        print(answer)


# part: program
program = lp.Program("sharded")
shards = program.add_node(lp.CourierNode(Shard), label="shard", replicas=3)
program.add_node(lp.PyNode(use, shards), label="user")
lp.launch(program)
# end
