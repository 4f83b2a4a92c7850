"""A program of one node that says hello, as dm-launchpad's README begins."""

from absl import app, logging

import launchpad as lp


class HelloWorld:
    def __init__(self) -> None:
        pass

    def run(self) -> None:
        logging.info("Hello World!!!")
        print("Hello World!!!")


def make_program() -> lp.Program:
    program = lp.Program("hello_world")
    node = lp.PyClassNode(HelloWorld)
    program.add_node(node, label="hello_printer")
    return program


def main(_):
    lp.launch(make_program())


if __name__ == "__main__":
    app.run(main)
