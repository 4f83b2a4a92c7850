"""Shards on nodes of their own, a learner with a GPU, and two processes that must share a node."""

import launchpad as lp


class Shard:
    """Keeps a part of something."""

    def ping(self):
        return lp.current().name


def learn(shards):
    print([shard.ping() for shard in shards], lp.current().gpus)


# part: program
program = lp.Program("placed")
with program.group("shard", resources=lp.Resources(cpus=1, placement="strict_spread")):
    shards = program.add_node(lp.CourierNode(Shard), replicas=2)
with program.group("learner", resources=lp.Resources(gpus=1, labels={"zone": "a"})):
    program.add_node(lp.PyNode(learn, shards))
# end
print(lp.plan(program, "ray"))
