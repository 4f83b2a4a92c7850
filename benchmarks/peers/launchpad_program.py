"""A program of two nodes in two processes. It runs unchanged under launchpad and under dm-launchpad.

    python launchpad_program.py [--noarray]

Use --noarray under dm-launchpad, where a call with 16 MB never returns.
"""

from absl import app, flags
from measure import measure, report

import launchpad as lp

ARRAY = flags.DEFINE_bool("array", True, "whether to measure a large array, too")


class Echo:
    def echo(self, value):
        return value


class Caller:
    def __init__(self, server, with_array):
        self._server = server
        self._with_array = with_array

    def run(self):
        report(measure(self._server.echo, self._with_array))
        lp.stop()


def main(_):
    program = lp.Program("echo")
    with program.group("server"):
        server = program.add_node(lp.CourierNode(Echo))
    with program.group("caller"):
        program.add_node(lp.CourierNode(Caller, server, ARRAY.value))
    lp.launch(program, lp.LaunchType.LOCAL_MULTI_PROCESSING, terminal="current_terminal")


if __name__ == "__main__":
    app.run(main)
