"""A program on four nodes of a Slurm cluster: a learner with GPUs, and actors that call it."""

import socket

import launchpad as lp


class Learner:
    def learn(self, host: str) -> str:
        return f"learnt from {host} on {socket.gethostname()}"


def act(learner: Learner) -> None:
    print(learner.learn(socket.gethostname()))


program = lp.Program("train")
with program.group("learner", resources=lp.Resources(gpus=2, cpus=8)):
    learner = program.add_node(lp.CourierNode(Learner))
with program.group("actor", resources=lp.Resources(cpus=1)):
    program.add_node(lp.PyNode(act, learner), replicas=24)
# part: launch
lp.launch(program, "slurm", nodes=4, partition="gpu", time="04:00:00")
# end
