"""A chain of stages, one per worker. Activations of micro-batches go up, and their gradients come down.

stage 0 ──activations──▶ stage 1 ──▶ … ──▶ stage K−1
        ◀───gradients───         ◀── … ◀──
"""

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise

import numpy as np

import launchpad as lp
from examples._shared.networks import layers_of
from examples._shared.problem import Problem
from examples.systems.gpipe.algorithm import cut
from examples.systems.gpipe.stage import Run, Stage


def make_program(
    problem: Problem, stages: int, runs: Sequence[Run], costs: Sequence[float] = ()
) -> lp.Program:
    """Return the graph: a chain of stages, each with a cut of the layers.

    Each stage returns its last batch of each run. The parameters of all stages, put together, are those of
    the network.

    Args:
        runs: Trainings, one after the other, each from the first parameters on.
        costs: How long each layer takes; by default its number of parameters.
    """
    n_rows = len(problem.batch(0))
    for run in runs:
        if run.micro_batches < 1 or n_rows % run.micro_batches:
            raise ValueError(
                f"a batch of {n_rows} rows can't be cut into {run.micro_batches} micro-batches of one size"
            )
    bounds = list(pairwise(cut(costs or problem.network.sizes, stages)))
    layers = layers_of(problem.network, problem.first_parameters)
    nodes = [lp.CourierNode(Stage) for _ in bounds]
    handles = [None, *(node.create_handle() for node in nodes), None]
    for i, (begin, end) in enumerate(bounds):
        # Only the first and the last stage see the data.
        training = problem.training if i in (0, stages - 1) else problem.training[:0]
        own = replace(problem, network=problem.network.part(begin, end), training=training)
        parameters = np.concatenate(layers[begin:end])
        nodes[i].configure(own, runs, parameters, handles[i], handles[i + 2])
    program = lp.Program("gpipe")
    with program.group("stage", restart=lp.RestartPolicy(scope="group"), serves_until="group"):
        for node in nodes:
            program.add_node(node)
    return program
