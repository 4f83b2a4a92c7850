"""The rates of a ReplayNode beside those of a replay buffer of plain calls: `python benchmarks/replay.py`.

A program inserts trajectories into a table and samples them uniformly, in batches of 32 that arrive as
arrays. A trajectory has 20 steps, each with an observation of 84×84 bytes, an action, a reward, a discount.

ours        `lp.ReplayNode`, with a SequenceWriter that sends trajectories one by one or 8 at a time, and
            `sample_batch`. The writer has one message under way while the program goes on, and trajectories
            that come in the meantime share the next message. The clock stops when all are in the table
plain       a CourierNode that keeps its items in a list. `insert(steps)` takes a list of dicts of arrays,
            `insert_many` takes 8 of these lists, and the caller of `sample(n)` stacks the steps itself
reverb      `lp.ReverbNode`, with a TrajectoryWriter, and a TrajectoryDataset for sampling. `--reverb PYTHON`
            names an interpreter that has dm-reverb and launchpad

All of them take turns in one run, and a figure is the median of the rounds. The time of a trajectory goes
from the environment's arrays to the server, the time of a batch from the server to the learner's arrays. The
last line is computed from those above: insert 8 trajectories, 8 at a time, and sample one batch, as in a
program that samples each trajectory four times.
"""

from __future__ import annotations

import random
import statistics
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

import launchpad as lp
from benchmarks.harness.command_line import Parser, finish
from benchmarks.harness.figures import Table, in_turns
from benchmarks.harness.processes import apart
from benchmarks.harness.programs import run

TITLES = ("trajectories inserted", "trajectories, 8 at a time", "batches sampled")
STEPS = 20
BATCH = 32
SIZE = 1000
AT_A_TIME = 8


def steps_of_an_episode() -> list[dict[str, Any]]:
    frames = np.zeros(
        (STEPS, 84, 84), np.uint8
    )  # mostly empty, as in a game: Reverb compresses them
    frames[:, 20:40, 30:50] = np.random.default_rng(0).integers(0, 255, (STEPS, 20, 20))
    return [
        {
            "observation": frames[i],
            "action": np.int32(i % 4),
            "reward": np.float32(i),
            "discount": np.float32(1),
        }
        for i in range(STEPS)
    ]


class PlainReplay:
    """A replay buffer as a user might write it, with a list and plain calls."""

    def __init__(self) -> None:
        self._items: list[Any] = []
        self._random = random.Random(0)

    def insert(self, steps: list[dict[str, Any]]) -> None:
        self._items.append(steps)
        if len(self._items) > SIZE:
            self._items.pop(0)

    def insert_many(self, items: list[list[dict[str, Any]]]) -> None:
        for item in items:
            self.insert(item)

    def sample(self, n: int) -> list[Any]:
        return self._random.choices(self._items, k=n)


def rate(
    act: Callable[[], object], seconds: float, finish: Callable[[], object] = lambda: None
) -> float:
    """Return how often a second `act` can be called; the clock stops when `finish` has returned."""
    began = time.perf_counter()
    times = 0
    while time.perf_counter() - began < seconds:
        act()
        times += 1
    finish()
    return times / (time.perf_counter() - began)


def insert_plain(replay: Any, n: int, seconds: float) -> float:
    # These are different objects, because pickle sends an object once even if a list has it often.
    episodes = [steps_of_an_episode() for _ in range(n)]
    if n > 1:
        return n * rate(lambda: replay.insert_many(episodes), seconds)
    return rate(lambda: replay.insert(episodes[0]), seconds)


def sample_plain(replay: Any, seconds: float) -> float:
    def sample() -> dict[str, Any]:
        items = replay.sample(BATCH)
        return {
            name: np.stack([np.stack([step[name] for step in item]) for item in items])
            for name in items[0][0]
        }

    assert sample()["observation"].shape == (BATCH, STEPS, 84, 84)
    return rate(sample, seconds)


def insert_ours(replay: Any, n: int, seconds: float) -> float:
    steps = steps_of_an_episode()
    with replay.sequence_writer("t", STEPS, STEPS, items_per_call=n) as writer:

        def insert() -> None:
            for step in steps:
                writer.append(step)

        return rate(insert, seconds, writer.flush)


def sample_ours(replay: Any, seconds: float) -> float:
    batch = replay.sample_batch("t", BATCH)
    assert batch.data["observation"].shape == (BATCH, STEPS, 84, 84)
    return rate(lambda: replay.sample_batch("t", BATCH), seconds)


def insert_reverb(replay: Any, n: int, seconds: float) -> float:
    steps = steps_of_an_episode()
    with replay.trajectory_writer(num_keep_alive_refs=STEPS) as writer:

        def insert() -> None:
            for step in steps:
                writer.append(step)
            trajectory = {name: column[-STEPS:] for name, column in writer.history.items()}
            writer.create_item("t", 1.0, trajectory)
            writer.flush(block_until_num_items=n - 1)

        return rate(insert, seconds, writer.flush)


def sample_reverb(replay: Any, seconds: float) -> float:
    import reverb
    import tensorflow as tf

    step = steps_of_an_episode()[0]
    dataset = reverb.TrajectoryDataset(
        replay.server_address,
        "t",
        dtypes={name: tf.as_dtype(value.dtype) for name, value in step.items()},
        shapes={name: tf.TensorShape((STEPS, *value.shape)) for name, value in step.items()},
        max_in_flight_samples_per_worker=2 * BATCH,
    )
    batches = iter(dataset.batch(BATCH).as_numpy_iterator())
    next(batches)
    return rate(lambda: next(batches), seconds)


def reverb_tables() -> list[Any]:
    import reverb

    limiter = reverb.rate_limiters.MinSize(1)
    selectors = reverb.selectors
    return [reverb.Table("t", selectors.Uniform(), selectors.Fifo(), SIZE, limiter)]


def measure(kind: str, seconds: float) -> dict[str, float]:
    """Run a program of this kind; return the rates of trajectories and of batches, by title."""
    program = lp.Program(f"replay-{kind}")
    node: Any
    if kind == "plain":
        node = lp.CourierNode(PlainReplay)
    elif kind == "reverb":
        node = lp.ReverbNode(reverb_tables)
    else:
        table = lp.replay.Table("t", lp.replay.Uniform(), lp.replay.Fifo(), SIZE)
        node = lp.ReplayNode([table])
    replay = program.add_node(node, label="replay")
    insert, sample = ACTS[kind]
    program.add_node(lp.PyNode(in_turn, insert, sample, replay, seconds), label="learner")
    rates = run(program)["learner"][0]
    return dict(zip(TITLES, rates, strict=False))


def in_turn(insert: Any, sample: Any, replay: Any, seconds: float) -> tuple[float, ...]:
    insert(replay, 1, seconds / 2)  # fill the table, so that its memory has been touched
    return insert(replay, 1, seconds), insert(replay, AT_A_TIME, seconds), sample(replay, seconds)


ACTS: dict[str, tuple[Any, Any]] = {
    "ours": (insert_ours, sample_ours),
    "plain": (insert_plain, sample_plain),
    "reverb": (insert_reverb, sample_reverb),
}


def main() -> None:
    parser = Parser(__doc__, {"rounds": 1, "seconds": 0.2}, rounds=7, seconds=2.0)
    parser.add_argument("--reverb", metavar="PYTHON", help="an interpreter with dm-reverb")
    options = parser.parse_args()
    seconds = options.seconds  # for each figure of a round
    ways: dict[str, Callable[[], dict[str, float]]] = {
        kind: partial(measure, kind, seconds) for kind in ("ours", "plain")
    }
    if options.reverb:
        ways["reverb"] = partial(apart, measure, "reverb", seconds, python=options.reverb)
    else:
        print("reverb is not measured: it needs --reverb PYTHON")
    rounds = in_turns(ways, options.rounds)
    figures: dict[str, dict[str, float]] = {
        title: {
            kind: statistics.median(turn[title] for turn in turns) for kind, turns in rounds.items()
        }
        for title in TITLES
    }
    _, many, batches = TITLES
    figures["both: 8 inserted, one batch"] = {
        kind: 1 / (AT_A_TIME / figures[many][kind] + 1 / figures[batches][kind]) for kind in ways
    }
    heads = {**dict.fromkeys(ways, ".0f"), "ours ÷ plain": ".1f"}
    table = Table("per second, median", heads, width=32)
    for title, by_kind in figures.items():
        table.row(title, *by_kind.values(), by_kind["ours"] / by_kind["plain"])
    finish(options, figures)


if __name__ == "__main__":
    main()
