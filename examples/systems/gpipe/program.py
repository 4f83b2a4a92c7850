"""A chain of stages, one per worker. Activations of micro-batches go up, and their gradients come down.

stage 0 ──activations──▶ stage 1 ──▶ … ──▶ stage K−1
        ◀───gradients───         ◀── … ◀──
"""

from collections.abc import Sequence

import numpy as np

import launchpad as lp
from examples._shared import networks
from examples.systems.gpipe.stage import Stage
from examples.systems.gpipe.training import Run, Training


def make_program(training: Training, runs: Sequence[Run], stages: int) -> lp.Program:
    """Return the graph: a chain of stages, each with a cut of the layers."""
    bounds = training.cut(stages)
    first = networks.matrices(training.widths, networks.first_parameters(training.widths))
    nodes = [lp.CourierNode(Stage) for _ in bounds]
    handles = [None, *(node.create_handle() for node in nodes), None]
    for i, (begin, end) in enumerate(bounds):
        parameters = np.concatenate([matrix.ravel() for matrix in first[begin:end]])
        widths = training.widths[begin : end + 1]
        nodes[i].configure(training, runs, widths, parameters, handles[i], handles[i + 2])
    program = lp.Program("gpipe")
    again = lp.RestartPolicy(scope="group")
    with program.group("stage", restart=again, serves_until="group"):
        for node in nodes:
            program.add_node(node)
    return program
