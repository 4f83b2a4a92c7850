"""Jobs that are each done once, and counts that all share."""

import launchpad as lp


# part: work
def work(queue: lp.WorkQueue, counter: lp.Counter) -> None:
    counter = counter.child("worker")
    for lease in queue:  # until it is closed, and all jobs are done
        if lease.job == "boat" and lease.attempt == 1:
            raise RuntimeError("the machine has a bad day")  # the job goes to another worker
        lease.done(len(lease.job))
        counter.increment(jobs=1)


def give(queue: lp.WorkQueue, counter: lp.Counter) -> dict[str, int]:
    queue.add_many({word: word for word in ("ox", "cow", "boat")})
    queue.close()
    lengths = {job.key: job.result for job in queue.results()}
    counter.wait_for(worker_jobs=3, timeout_s=60)
    return dict(sorted(lengths.items()))


# part: program
program = lp.Program("words")
queue = program.add_node(lp.WorkQueueNode(), label="queue")
counter = program.add_node(lp.CounterNode(), label="counter")
with program.group("worker", restart=lp.RestartPolicy()):
    program.add_node(lp.PyNode(work, queue, counter), replicas=2)
program.add_node(lp.PyNode(give, queue, counter), label="giver")
print(lp.run(program)["giver"][0])
# end
