"""As Mava before it moved to JAX: a builder holds the program, and its bound methods are the nodes.

Of each node the builder says whether it may use a GPU; the learner may use all.
"""

import functools

from absl import app, flags
from launchpad.nodes.python.local_multi_processing import PythonProcess

import launchpad as lp

FLAGS = flags.FLAGS
flags.DEFINE_integer("num_executors", 2, "How many act.")


class ParameterServer:
    def __init__(self):
        self._parameters = {"steps": 0, "weights": 0.0}

    def get_parameters(self, names):
        return {name: self._parameters[name] for name in names}

    def add_to_parameters(self, parameters):
        for name, more in parameters.items():
            self._parameters[name] += more


class Executor:
    def __init__(self, parameter_server, executor_id):
        self._server, self._id = parameter_server, executor_id

    def run(self):
        while not lp.wait_for_stop(0.01):
            self._server.add_to_parameters({"steps": 1})


class Trainer:
    def __init__(self, parameter_server, max_steps):
        self._server, self._max_steps = parameter_server, max_steps

    def run(self):
        while self._server.get_parameters(["steps"])["steps"] < self._max_steps:
            self._server.add_to_parameters({"weights": 0.5})
        print("trained to", self._server.get_parameters(["weights"]), flush=True)
        lp.stop()


class Launcher:
    """Adds nodes to a program, and knows which of them may use a GPU."""

    def __init__(self, nodes_on_gpu):
        self._program, self._nodes_on_gpu = lp.Program(name="mava"), nodes_on_gpu
        self._labels = []

    def add(self, function, arguments=(), name="node", node_type=lp.CourierNode):
        self._labels.append(name)
        with self._program.group(name):
            return self._program.add_node(node_type(function, *arguments))

    def launch(self):
        local_resources = {
            name: []
            if name in self._nodes_on_gpu
            else PythonProcess(env={"CUDA_VISIBLE_DEVICES": "-1"})
            for name in self._labels
        }
        lp.launch(self._program, local_resources=local_resources, terminal="current_terminal")


class Builder:
    def __init__(self, num_executors, max_steps=50):
        self._num_executors, self._max_steps = num_executors, max_steps
        self._launcher = Launcher(nodes_on_gpu=["trainer"])

    def parameter_server(self):
        return ParameterServer()

    def executor(self, executor_id, parameter_server):
        return Executor(parameter_server, executor_id)

    def trainer(self, parameter_server):
        return Trainer(parameter_server, self._max_steps)

    def build(self):
        server = self._launcher.add(self.parameter_server, name="parameter_server")
        for i in range(self._num_executors):
            self._launcher.add(functools.partial(self.executor, i), [server], name="executor")
        self._launcher.add(self.trainer, [server], name="trainer")

    def launch(self):
        self._launcher.launch()


def main(_):
    builder = Builder(FLAGS.num_executors)
    builder.build()
    builder.launch()


if __name__ == "__main__":
    app.run(main)
