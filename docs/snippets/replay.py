"""Actors write transitions into a replay server, a learner samples them and sets their priorities."""

import random

import launchpad as lp


# part: actor
class Actor:
    """A player of a coin game: observations are numbers, an action is 0 or 1."""

    def __init__(self, replay: lp.replay.ReplayClient, episodes: int) -> None:
        self.replay = replay
        self.episodes = episodes

    def run(self) -> int:
        rng = random.Random(lp.current().seed)
        with self.replay.n_step_writer("transitions", n=3, discount=0.9) as writer:
            for _ in range(self.episodes):
                writer.add_first({"observation": 0.0})
                for step in range(1, 11):
                    action = rng.randrange(2)
                    is_last = step == 10
                    writer.add(
                        action,
                        reward=float(action),
                        next_observation={"observation": float(step)},
                        discount=0.0 if is_last else 1.0,
                        is_last=is_last,
                    )
        return self.episodes


# part: learner
class Learner:
    def __init__(self, replay: lp.replay.ReplayClient, steps: int) -> None:
        self.replay = replay
        self.steps = steps

    def run(self) -> str:
        with self.replay.batches("transitions", batch_size=16, prefetch=2) as batches:
            for _, batch in zip(range(self.steps), batches, strict=False):
                weights = 1 / (batch.info.table_size * batch.info.probability)
                errors = abs(batch.data.reward - 1.5) * weights
                self.replay.update_priorities("transitions", batch.info.key, errors)
        return f"{batch.data.observation['observation'].shape} {batch.data.reward.dtype}"


# part: program
def make_program() -> lp.Program:
    table = lp.replay.Table(
        "transitions",
        sampler=lp.replay.Prioritized(priority_exponent=0.6),
        remover=lp.replay.Fifo(),
        max_size=1000,
        rate_limiter=lp.replay.SampleToInsertRatio(
            samples_per_insert=4, min_size_to_sample=20, error_buffer=100
        ),
    )
    program = lp.Program("replay")
    replay = program.add_node(lp.ReplayNode([table]), label="replay")
    program.add_node(lp.PyClassNode(Actor, replay, episodes=3), label="actor", replicas=2)
    program.add_node(lp.PyClassNode(Learner, replay, steps=12), label="learner")
    return program


if __name__ == "__main__":
    print(lp.run(make_program()))
# end
