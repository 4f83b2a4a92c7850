"""Nodes for tests of replay."""

from __future__ import annotations

import time
from typing import Any

import numpy as np

import launchpad as lp
from launchpad.replay import ReplayClient


def wait_for_samples(replay: ReplayClient) -> None:
    """For ever: there is nothing to sample."""
    replay.sample("empty")


def wait_in_batches(replay: ReplayClient) -> None:
    for _ in replay.batches("empty", 2):
        pass


def wait_to_insert(replay: ReplayClient) -> None:
    while True:
        replay.insert(0, {"full": 1.0})


def write_for_long(replay: ReplayClient, steps: int) -> int:
    """Items of four steps that overlap, however often the server is started again meanwhile."""
    with replay.trajectory_writer(4) as writer:
        for i in range(steps):
            writer.append({"i": i})
            if i >= 3:
                writer.create_item("t", 1.0, num_steps=4)
            time.sleep(0.002)
    return steps - 3


def act(replay: ReplayClient, episodes: int) -> int:
    """Transitions and sequences of episodes of 30 steps."""
    me = lp.current()
    with (
        replay.n_step_writer("transitions", 3, 0.9) as transitions,
        replay.sequence_writer("sequences", 10, 5) as sequences,
    ):
        for episode in range(episodes):
            frame = np.full((84, 84), me.replica_index, np.uint8)
            transitions.add_first(frame)
            for step in range(30):
                sequences.append({"frame": frame, "reward": float(step)})
                transitions.add(step, 1.0, frame, is_last=step == 29)
            sequences.end_episode()
            replay.insert(episode, {"results": 1.0})
    return episodes


def learn(replay: ReplayClient, steps: int) -> tuple[Any, ...]:
    """Sample transitions and update their priorities. Then sample sequences, and all results."""
    n_updated = 0
    with replay.batches("transitions", 32, prefetch=1) as batches:
        for _, batch in zip(range(steps), batches, strict=False):
            assert batch.data.observation.shape == (32, 84, 84)
            n_updated += replay.update_priorities(
                "transitions", batch.info.key, batch.info.probability
            )
    sequences = replay.sample_batch("sequences", 16)
    results = replay.sample("results", 4)
    shape = sequences.data["frame"].shape
    return n_updated, shape, sorted(int(each.data) for each in results)
