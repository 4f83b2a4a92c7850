"""An agent in this process, without a graph: its actor learns between its steps."""

from examples.systems.acme.algorithm import EnvironmentLoop, LearningActor
from examples.systems.acme.builders import Builder
from examples.systems.acme.evaluator import Evaluated, Evaluator, Goal
from examples.systems.acme.variable_client import VariableClient

EVALUATE_EVERY = 50


class LocalCounter:
    """A counter with the methods of lp.Counter, for one process."""

    def __init__(self) -> None:
        self._counts: dict[str, float] = {}

    def increment(self, **by: float) -> dict[str, float]:
        for name, number in by.items():
            self._counts[name] = self._counts.get(name, 0) + number
        return self._counts

    def get_counts(self) -> dict[str, float]:
        return self._counts


def run_alone(builder: Builder, seed: int, goal: Goal) -> Evaluated:
    """Train, evaluate after every 50 steps, and return the last evaluation."""
    experience = builder.make_local(seed)
    counter = LocalCounter()
    learner = builder.make_learner(experience, seed)
    actor = builder.make_actor(VariableClient(learner), experience, seed)
    loop = EnvironmentLoop(LearningActor(actor, learner, experience.can_sample), seed)
    evaluator = Evaluator(learner, counter, goal)
    evaluated_at = 0
    while not evaluator.is_done():
        counter.increment(actor_steps=loop.run_episode(), episodes=1)
        step = learner.get_variables().step
        if step >= evaluated_at + EVALUATE_EVERY:
            evaluated_at = step
            evaluator.evaluate()
    return evaluator.result()
