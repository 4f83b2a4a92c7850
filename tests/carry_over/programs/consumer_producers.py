"""A consumer that asks producers for work and sums what they answer: handles, futures, lp.stop()."""

from absl import app, flags
from launchpad.nodes.python.local_multi_processing import PythonProcess

import launchpad as lp

FLAGS = flags.FLAGS
flags.DEFINE_integer("num_producers", 2, "The number of concurrent producers.")


class Consumer:
    def __init__(self, producers):
        self._producers = producers

    def run(self):
        futures = [producer.futures.work(i) for i, producer in enumerate(self._producers)]
        results = [future.result() for future in futures]
        print("Results:", results)
        lp.stop()


class Producer:
    def work(self, context):
        return context


def make_program(num_producers: int) -> lp.Program:
    program = lp.Program("consumer_producers")
    with program.group("producer"):
        producers = [program.add_node(lp.CourierNode(Producer)) for _ in range(num_producers)]
    node = lp.CourierNode(Consumer, producers=producers)
    program.add_node(node, label="consumer")
    return program


def main(_):
    program = make_program(num_producers=FLAGS.num_producers)
    lp.launch(programs=program, local_resources={"producer": PythonProcess(), "nobody": []})


if __name__ == "__main__":
    app.run(main)
