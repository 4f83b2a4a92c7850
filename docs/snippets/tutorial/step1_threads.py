"""A parameter server and three workers train a classifier of handwritten digits."""

import os

import digits
import launchpad as lp
import numpy as np


# part: classes
class ParameterServer:
    def __init__(self):
        self.weights = np.zeros((64, 10))

    def pull(self):
        return self.weights

    def push(self, gradient):
        self.weights = self.weights - 0.5 * gradient


class Worker:
    def __init__(self, server: lp.CourierClient[ParameterServer], train, test, steps):
        self.server = server
        self.images, self.labels = train
        self.test = test
        self.steps = steps

    def run(self):
        rng = np.random.default_rng(lp.current().seed)  # each worker has its own seed
        for _ in range(self.steps):
            batch = rng.choice(len(self.images), 50)
            targets = digits.one_hot(self.labels[batch])
            weights = self.server.pull()
            self.server.push(digits.gradient(weights, self.images[batch], targets))

        lp.barrier("trained")  # the other workers may have steps left
        accuracy = digits.accuracy(self.server.pull(), *self.test)
        print(f"process {os.getpid()}: test accuracy {accuracy:.0%}")


# part: program
def make_program(steps=100):
    train, test = digits.load()
    program = lp.Program("digits")
    server = program.add_node(lp.CourierNode(ParameterServer, one_at_a_time=True), label="server")
    program.add_node(lp.PyClassNode(Worker, server, train, test, steps), label="worker", replicas=3)
    return program


if __name__ == "__main__":
    lp.launch(make_program())
