"""The calls and the resources of a program, between two looks."""

import time

import launchpad as lp


class Learner:
    def step(self, batch: list[float]) -> float:
        return sum(batch) / len(batch)


def act(learner: lp.CourierClient[Learner]) -> None:
    while not lp.stop_event().wait(0.01):
        learner.step([1.0, 2.0, 3.0])


# part: look
program = lp.Program("metrics")
learner = program.add_node(lp.CourierNode(Learner), label="learner")
program.add_node(lp.PyNode(act, learner), label="actor", replicas=2)

with lp.launch(program) as running:
    while any(worker.state != "running" for worker in running.status()):
        time.sleep(0.1)
    before = running.metrics()
    time.sleep(1.0)
    now = running.metrics().since(before)

print(now.edges)
steps = now.edges.total(server="learner", method="step")
print(
    f"{steps.calls_per_s:.0f} calls/s, p99 {steps.p99_s * 1e3:.2f} ms, {steps.bytes_per_s:.0f} B/s"
)
for worker in now.workers:
    process = worker.process
    if process is not None:
        megabytes = process.memory_bytes / 1e6
        print(f"{worker.worker} used {process.cpu_percent:.1f} % of a CPU, has {megabytes:.1f} MB")
# end
