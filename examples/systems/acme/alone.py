"""An agent in one process: its actor and its learner take turns."""

import numpy as np

import launchpad as lp
from examples.systems.acme.algorithm import TABLE, Actor, Agent, Learner, Result, Steps, run_episode


class LocalReplay:
    """A replay with the methods of lp.replay.ReplayClient that agents use. It never waits."""

    def __init__(self, agent: Agent, seed: int) -> None:
        self.table = agent.make_table()
        self.table.seed(seed)
        self._batch_size = agent.batch_size

    def insert(self, data: Steps, priorities: dict[str, float]) -> None:
        self.table.insert(self.table.rate_limiter.inserts, priorities[TABLE], data)

    def sample_batch(self, table: str, batch_size: int) -> lp.replay.ReplaySample:
        samples = [self.table.sample() for _ in range(batch_size)]
        *info, items = zip(*samples, strict=True)
        data = Steps(*map(np.array, zip(*items, strict=True)))
        return lp.replay.ReplaySample(lp.replay.SampleInfo(*map(np.array, info)), data)

    def can_sample(self) -> bool:
        """True if the rate limiter lets a batch through."""
        limiter = self.table.rate_limiter
        return limiter.can_sample() and limiter.diff - self._batch_size >= limiter.min_diff

    def info(self) -> dict[str, lp.replay.TableInfo]:
        return {TABLE: self.table.info()}


class LearningActor(Actor):
    """An actor that learns, too."""

    def __init__(self, agent: Agent, learner: Learner, experience: LocalReplay, seed: int) -> None:
        super().__init__(agent, learner, experience, seed)
        self._learner = learner
        self._replay = experience

    def update(self) -> None:
        while self._replay.can_sample():
            self._learner.step(self._replay)
        super().update()


def run_alone(agent: Agent, steps: int, seed: int = 0) -> Result:
    """Train the agent in this process."""
    experience = LocalReplay(agent, seed)
    learner = Learner(agent, seed, steps)
    actor = LearningActor(agent, learner, experience, seed)
    made = agent.environment.make(seed)
    while learner.steps < steps:
        run_episode(made, actor)
    return Result(learner, 0, experience.info()[TABLE])
