"""The graph of an agent: actors, their experience, and the learner.

actor × n ──steps──▶ experience ──batches──▶ learner ──▶ cacher ──variables──▶ actor × n
"""

import launchpad as lp
from examples.systems.acme.algorithm import Agent
from examples.systems.acme.workers import SavedLearner, act

REFRESH_MS = 50
STALE_MS = 60_000


def make_program(
    agent: Agent, steps: int, seed: int = 0, n_actors: int = 2, kill_at: int | None = None
) -> lp.Program:
    """Return the program of an agent. After these steps its learner returns a `Result`.

    Args:
        kill_at: The step after which the learner dies, once.
    """
    program = lp.Program("acme")
    experience = program.add_node(lp.ReplayNode([agent.make_table()]), label="experience")
    with program.group("learner", restart=lp.RestartPolicy(), main=True):
        learner = program.add_node(
            lp.CourierNode(SavedLearner, agent, experience, seed, steps, kill_at)
        )
    source = program.add_node(lp.CacherNode(learner, REFRESH_MS, STALE_MS), label="cacher")
    with program.group("actor"):
        for number in range(n_actors):
            own_seed = n_actors * seed + number
            program.add_node(lp.PyNode(act, agent, source, experience, own_seed))
    return program
