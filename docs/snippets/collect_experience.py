"""Collect experience with 32 actors, and learn from it."""

import launchpad as lp
import numpy as np

GOAL = 7  # a corridor of eight cells; the reward is in the last one


class Learner:
    def __init__(self, replay: lp.replay.ReplayClient) -> None:
        self.replay = replay
        self.q_values = np.zeros((GOAL + 1, 2))  # of each cell, for left and right

    def get_q_values(self) -> np.ndarray:
        return self.q_values

    def run(self) -> list[int]:
        with self.replay.batches("transitions", batch_size=64) as batches:
            for _ in range(400):
                cell, action, reward, next_cell = next(batches).data
                target = reward + 0.9 * self.q_values[next_cell].max(axis=1)
                self.q_values[cell, action] += 0.3 * (target - self.q_values[cell, action])
        return self.q_values[:GOAL].argmax(axis=1).tolist()


def act(learner: Learner, replay: lp.replay.ReplayClient) -> None:
    rng = np.random.default_rng(lp.current().seed)
    while True:  # the program stops it
        q_values = learner.get_q_values()
        cell = 0
        while cell != GOAL:
            explores = rng.random() < 0.3 or q_values[cell].min() == q_values[cell].max()
            action = int(rng.integers(2) if explores else q_values[cell].argmax())
            next_cell = cell + 1 if action == 1 else max(cell - 1, 0)
            replay.insert((cell, action, float(next_cell == GOAL), next_cell), {"transitions": 1})
            cell = next_cell


limiter = lp.replay.SampleToInsertRatio(8, min_size_to_sample=500, error_buffer=1000)
sampler = lp.replay.Uniform()
remover = lp.replay.Fifo()
table = lp.replay.Table("transitions", sampler, remover, max_size=10_000, rate_limiter=limiter)
program = lp.Program("corridor")
replay = program.add_node(lp.ReplayNode([table]), label="replay")
with program.group("learner", main=True):
    learner = program.add_node(lp.CourierNode(Learner, replay))
program.add_node(lp.PyNode(act, learner, replay), label="actor", replicas=32)
print("best actions:", lp.run(program, preload=["numpy"])["learner"][0])
