"""Collect rollouts in eight actors, one of which is killed, and learn from them in one worker."""

import gymnasium
import launchpad as lp
import numpy as np

STEPS = 100  # of a rollout


class Actor:
    def __init__(self, number: int) -> None:
        self.environments = gymnasium.make_vec("CartPole-v1", 4, vectorization_mode="sync")
        self.observations, _ = self.environments.reset(seed=number)
        self.rng = np.random.default_rng(lp.current().seed)
        self.is_killed_at = 10 if number == 0 and lp.current().attempt == 1 else None

    @lp.idempotent  # of an actor that dies, the next attempt plays the rollout
    def rollout(self, weights: np.ndarray, iteration: int) -> tuple[np.ndarray, ...]:
        if iteration == self.is_killed_at:
            lp.testing.crash()
        steps = []
        for _ in range(STEPS):
            chances = 1 / (1 + np.exp(-self.observations @ weights))
            actions = (self.rng.random(4) < chances).astype(int)
            before = self.observations
            self.observations, rewards, ends, cuts, _ = self.environments.step(actions)
            steps.append((before, actions - chances, rewards, ends | cuts))
        return tuple(np.array(column) for column in zip(*steps, strict=True))


def learn(actors: list[Actor]) -> bool:
    weights = np.zeros(4)
    for iteration in range(60):
        futures = [actor.futures.rollout(weights, iteration) for actor in actors]
        rollouts = zip(*(future.result() for future in futures), strict=True)
        observations, errors, rewards, ends = (np.concatenate(part, axis=1) for part in rollouts)
        returns = rewards + 0.0
        for step in reversed(range(STEPS - 1)):
            returns[step] += 0.98 * ~ends[step] * returns[step + 1]
        advantages = returns - returns.mean(axis=1, keepdims=True)
        gradient = ((advantages * errors)[..., np.newaxis] * observations).mean(axis=(0, 1))
        weights += gradient / np.linalg.norm(gradient)
    return bool(ends.sum() < ends.size / 200)


program = lp.Program("rollouts")
with program.group("actor", restart=lp.RestartPolicy(backoff=0)):
    nodes = [lp.CourierNode(Actor, number) for number in range(8)]
    actors = [program.add_node(node) for node in nodes]
with program.group("learner", main=True):
    program.add_node(lp.PyNode(learn, actors))
print("episodes last 200 steps:", lp.run(program, preload=["numpy", "gymnasium"])["learner"][0])
