"""The graph of an agent: actors, what they have seen, the learner, and what watches them.

    actor × n ──experience──▶ replay ──▶ learner ──▶ cacher ──variables──▶ actor × n, evaluator
    actor × n, learner ──counts──▶ counter ──▶ evaluator
"""

import launchpad as lp
from examples.acme.actor import ActingLoop
from examples.acme.dqn import DQNActor, DQNLearner, GreedyActor
from examples.acme.evaluator import Evaluator
from examples.acme.learner import SavedLearner
from examples.acme.replay import make_table
from examples.acme.variable_client import REFRESH_S, STALE_S


def make_program(
    seed: int, wanted: float, limit: int, crashes: tuple[int, ...] = (), n_actors: int = 2
) -> lp.Program:
    program = lp.Program("acme")
    replay = program.add_node(lp.ReplayNode([make_table()]), label="replay")
    counter = program.add_node(lp.CounterNode(), label="counter")
    restart = lp.RestartPolicy(max_restarts=len(crashes), backoff=0)
    with program.group("learner", restart=restart):
        learner = program.add_node(
            lp.CourierNode(SavedLearner, DQNLearner, replay, seed, counter, crashes)
        )
    source = program.add_node(
        lp.CacherNode(learner, 1000 * REFRESH_S, 1000 * STALE_S), label="cacher"
    )
    with program.group("actor"):
        for number in range(n_actors):
            program.add_node(
                lp.PyClassNode(ActingLoop, DQNActor, source, replay, counter, 100 * seed + number, 50)
            )
    with program.group("evaluator", main=True):
        last_crash = max(crashes, default=0)
        program.add_node(
            lp.PyClassNode(Evaluator, GreedyActor, source, counter, replay, wanted, last_crash, limit)
        )
    return program
