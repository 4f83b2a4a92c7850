"""A group that goes on with fewer ranks when one is lost, and with all when it is back."""

import launchpad as lp


# part: rank
def train(group: lp.Collective, limit: int) -> tuple[int, int]:
    me = lp.current()
    steps = group.all_gather_object(me.load(default=0))
    step = max(steps)  # all go on from the one that has come farthest
    while step < limit or group.size < me.num_replicas:
        if step == 10 and me.name == "rank-1" and me.attempt == 1:
            lp.testing.crash()
        step += group.all_reduce(1, op="max")  # PeerFailed, if another one has died
        me.save(step)
    return group.size, me.attempt


# part: program
program = lp.Program("elastic")
with program.group("rank", restart=lp.RestartPolicy(min_replicas=2)):
    program.add_node(lp.CollectiveNode(train, 30), replicas=3)


# end
print(lp.run(program)["rank"])
