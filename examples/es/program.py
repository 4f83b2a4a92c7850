"""The graph: evaluators play episodes with perturbed parameters, a trainer updates them.

    trainer ──parameters, seeds──▶ evaluator × n
       ▲────────two returns per seed─────┘

A seed stands for a perturbation, and both sides rebuild the vector from it. So an iteration sends only
the parameters and a few numbers, even when the policy is a large network.

An evaluator has no state: if one dies, its next attempt plays the same episodes, and the bits are the same.
"""

from __future__ import annotations

from collections.abc import Callable

import launchpad as lp
from examples.es.cartpole import CartPole
from examples.es.evolution import Environment, Strategy
from examples.es.workers import Evaluator, Trainer


def make_program(
    environment: Callable[[], Environment] = CartPole,
    strategy: Strategy | None = None,
    evaluators: int = 4,
    kill_at: int | None = None,
) -> lp.Program:
    """Return the graph: trainer → evaluators.

    Args:
        environment: Makes an environment, in each evaluator.
        kill_at: The first evaluator dies in the episodes of this seed.
    """
    strategy = strategy or Strategy()
    program = lp.Program("es")
    with program.group("evaluator", restart=lp.RestartPolicy()):
        nodes = [
            lp.CourierNode(Evaluator, environment, strategy.sigma, kill_at)
            for _ in range(evaluators)
        ]
        handles = [program.add_node(node) for node in nodes]
    program.add_node(lp.PyClassNode(Trainer, handles, strategy), label="trainer")
    return program
