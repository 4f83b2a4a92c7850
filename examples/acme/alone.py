"""The same agent in this process: an actor that learns in between, and no graph."""

from examples.acme.algorithm import Agent, EnvironmentLoop
from examples.acme.dqn import DQNActor, DQNLearner, GreedyActor
from examples.acme.evaluator import Evaluated, Evaluator
from examples.acme.replay import LocalReplay
from examples.acme.variable_client import VariableClient

EVALUATE_EVERY = 50


class LocalCounter:
    """What lp.Counter is, for one process."""

    def __init__(self) -> None:
        self._counts: dict[str, float] = {}

    def increment(self, **by: float) -> dict[str, float]:
        for name, number in by.items():
            self._counts[name] = self._counts.get(name, 0) + number
        return self._counts

    def get_counts(self) -> dict[str, float]:
        return self._counts


def run_alone(seed: int, wanted: float, limit: int) -> Evaluated:
    replay, counter = LocalReplay(seed), LocalCounter()
    learner = DQNLearner(replay, seed)
    actor = DQNActor(VariableClient(learner, 50), replay, seed)
    loop = EnvironmentLoop(Agent(actor, learner, replay.can_sample), seed)
    evaluator = Evaluator(GreedyActor, learner, counter, replay, wanted, 0, limit)
    evaluated_at = 0
    while not evaluator.is_done():
        counter.increment(actor_steps=loop.run_episode(), episodes=1)
        if learner.steps >= evaluated_at + EVALUATE_EVERY:
            evaluated_at = learner.steps
            evaluator.evaluate()
    return evaluator.result()
