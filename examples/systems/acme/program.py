"""The graph of an agent: actors, their experience, the learner, and the evaluator.

actor × n ──experience──▶ replay ──batches──▶ learner ──▶ cacher ──variables──▶ actor × n, evaluator
actor × n, learner ──counts──▶ counter ──▶ evaluator
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import launchpad as lp
from examples.systems.acme.actor import ActingLoop
from examples.systems.acme.builders import Builder
from examples.systems.acme.evaluator import Evaluated, Evaluator, Goal
from examples.systems.acme.learner import Begun, SavedLearner
from examples.systems.acme.variable_client import REFRESH_S, STALE_S, Age, VariableSource


class Result(NamedTuple):
    """The results of the workers of a run."""

    evaluated: Evaluated
    report: Any
    """The statistics of the replay, or queue, at the end."""
    begun: list[Begun]
    ages: list[Age]


def run_spread(
    builder: Builder,
    seed: int,
    goal: Goal,
    crashes: tuple[int, ...] = (),
    n_actors: int = 2,
) -> Result:
    """Train until the evaluator has reached its goal, and all crashes have happened."""
    program = lp.Program("acme")
    experience = program.add_node(builder.make_node(), label="experience")
    counter = program.add_node(lp.CounterNode(), label="counter")
    restart = lp.RestartPolicy(max_restarts=len(crashes), backoff=0)
    with program.group("learner", restart=restart):
        learner = program.add_node(
            lp.CourierNode(SavedLearner, builder.make_learner, experience, seed, counter, crashes)
        )
    cacher = lp.CacherNode(learner, 1000 * REFRESH_S, 1000 * STALE_S)
    source = program.add_node(cacher, label="cacher")
    with program.group("actor"):
        for number in range(n_actors):
            make = builder.make_actor
            own_seed = n_actors * seed + number
            program.add_node(
                lp.PyClassNode(ActingLoop, make, source, experience, counter, own_seed)
            )
    with program.group("evaluator", main=True):
        last_crash = max(crashes, default=0)
        program.add_node(
            lp.PyNode(evaluate, source, counter, experience, builder.report, goal, last_crash)
        )

    results = lp.run(program, preload=["numpy", "gymnasium.envs.classic_control"])
    evaluated, report = results["evaluator"][0]
    return Result(evaluated, report, results["learner"][0], results["actor"])


def evaluate(
    source: VariableSource,
    counter: lp.Counter,
    experience: Any,
    report: Callable[[Any], Any],
    goal: Goal,
    last_crash: int,
) -> tuple[Evaluated, Any]:
    """Return the evaluator's result, and the report on the experience at that time."""
    return Evaluator(source, counter, goal, last_crash).run(), report(experience)
