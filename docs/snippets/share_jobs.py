"""Share jobs among workers that die."""

import launchpad as lp


def train(learning_rate: float) -> float:
    return (learning_rate - 0.3) ** 2  # the loss; yours takes hours


def work(queue: lp.WorkQueue) -> None:
    for lease in queue:  # until all jobs are done or have failed
        learning_rate = lease.job
        if learning_rate == 0.9 or (learning_rate == 0.5 and lease.attempt == 1):
            lp.testing.crash()  # dies at once, as by SIGKILL
        lease.done(train(learning_rate))


def collect(queue: lp.WorkQueue) -> None:
    queue.add_many({f"rate {n / 10}": n / 10 for n in range(10)})
    queue.close()
    losses = {}
    for job in queue.results():
        if job.is_failed:
            print(f"{job.key} failed after {len(job.reasons)} attempts: {job.reasons[-1]}")
        else:
            losses[job.key] = job.result
    print(f"{len(losses)} jobs are done; the best is {min(losses, key=losses.get)}")


program = lp.Program("sweep")
queue = program.add_node(lp.WorkQueueNode(max_attempts=2), label="queue")
with program.group("worker", restart=lp.RestartPolicy(max_restarts=100)):
    program.add_node(lp.PyNode(work, queue), replicas=4)
program.add_node(lp.PyNode(collect, queue), label="collector")
lp.launch(program)
