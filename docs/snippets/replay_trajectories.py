"""Items made of steps by hand; a queue; what is saved."""

import tempfile

import launchpad as lp
import numpy as np


# part: writer
def act(replay: lp.replay.ReplayClient) -> None:
    with replay.trajectory_writer(max_sequence_length=5) as writer:
        for step in range(8):
            writer.append({"observation": np.full(2, step), "reward": step / 10})
            if writer.episode_steps >= 5:
                writer.create_item("sequences", priority=1.0, num_steps=5)
        history = writer.history
        ends = {
            "before": history["observation"][-2],  # one step
            "rewards": history["reward"][-3:],  # three, with an axis for time
            "label": 7,  # of its own
        }
        writer.create_item("ends", priority=1.0, trajectory=ends)


# part: learner
def learn(replay: lp.replay.ReplayClient) -> None:
    batch = replay.sample_batch("sequences", 4)
    print("a batch:", batch.data["observation"].shape, batch.data["reward"][0])
    (end,) = replay.sample("ends")
    print("an item:", end.data["before"], end.data["rewards"], end.data["label"])
    print("size:", replay.info()["sequences"].size, "saved as", replay.checkpoint())


# part: program
def make_program() -> lp.Program:
    tables = [
        lp.replay.Table("sequences", lp.replay.Fifo(), lp.replay.Fifo(), max_size=100),
        lp.replay.Table.queue("ends", max_size=10),
    ]
    program = lp.Program("trajectories")
    with program.group("replay", restart=lp.RestartPolicy(save_every_s=60)):
        replay = program.add_node(lp.ReplayNode(tables))
    program.add_node(lp.PyNode(act, replay), label="actor")
    program.add_node(lp.PyNode(learn, replay), label="learner")
    return program


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:  # yours would stay: state="runs/exp1"
        lp.run(make_program(), state=folder)
# end
