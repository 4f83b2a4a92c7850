"""A consumer that dies with an item in its hands: its next attempt is given that item again."""

import launchpad as lp


# part: worker
def work(jobs: lp.Queue[str]) -> list[str]:
    done = []
    for job in jobs:
        if job == "first" and lp.current().attempt == 1:
            raise OSError("the disk is full")
        done.append(job)
    reported = [f"{each.consumer}, attempt {each.attempt}: {each.items}" for each in jobs.reports()]
    return [*done, *reported]


# end
def send(jobs: lp.Queue[str]) -> None:
    with jobs.producer():
        jobs.put_many(["first", "second"])


program = lp.Program("jobs")
jobs = program.add_node(lp.QueueNode[str](producers=1), label="jobs")
program.add_node(lp.PyNode(send, jobs), label="sender")
with program.group("worker", restart=lp.RestartPolicy(backoff=0)):
    program.add_node(lp.PyNode(work, jobs))
print(lp.run(program, terminal="output_to_files")["worker"])
