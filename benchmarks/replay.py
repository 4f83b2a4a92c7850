"""How quick a ReplayNode is beside a replay buffer of plain calls: `python benchmarks/replay.py`.

Trajectories of 20 steps, each an observation of 84×84 bytes, an action, a reward and a discount, are inserted
into a table and sampled from it uniformly, in batches of 32 that arrive as arrays.

ours        `lp.ReplayNode`: a SequenceWriter, which sends trajectories as they come or 8 at a time, and
            `sample_batch`. It has one message under way while it goes on, and those that come meanwhile
            share the next one; the time ends when all are in the table
plain       a CourierNode that keeps what it is given in a list: `insert(steps)`, a list of dicts of arrays,
            or lists of 8 such lists; and `sample(n)`, whose steps the caller stacks
reverb      `lp.ReverbNode`, with `--reverb PYTHON`, an interpreter that has dm-reverb and launchpad: a
            TrajectoryWriter, and a TrajectoryDataset for sampling

In one run, taking turns; the median of the rounds. A step is counted from the environment's arrays to the
server, and from there to the learner's arrays. The last line is computed from those above: 8 trajectories
inserted, 8 at a time, and a batch sampled, as where each is sampled four times.
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import launchpad as lp

TITLES = ("trajectories inserted", "trajectories, 8 at a time", "batches sampled")
STEPS, BATCH, SIZE, AT_A_TIME = 20, 32, 1000, 8


def steps_of_an_episode() -> list[dict[str, Any]]:
    frames = np.zeros((STEPS, 84, 84), np.uint8)  # like a game's: Reverb compresses them
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
    """What one would write: a list, and plain calls."""

    def __init__(self) -> None:
        self._items: list[Any] = []
        self._random = random.Random(0)

    def insert(self, steps: list[dict[str, Any]]) -> None:
        self._items.append(steps)
        if len(self._items) > SIZE:
            self._items.pop(0)

    def insert_many(self, items: list[list[dict[str, Any]]]) -> None:
        for each in items:
            self.insert(each)

    def sample(self, n: int) -> list[Any]:
        return self._random.choices(self._items, k=n)


def rate(
    act: Callable[[], object], seconds: float, finish: Callable[[], object] = lambda: None
) -> float:
    """How often a second it can be done, until `finish` has returned."""
    began, times = time.perf_counter(), 0
    while time.perf_counter() - began < seconds:
        act()
        times += 1
    finish()
    return times / (time.perf_counter() - began)


def insert_plain(replay: Any, n: int, seconds: float) -> float:
    episodes = [steps_of_an_episode() for _ in range(n)]  # pickle sends the same one once
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

    one = steps_of_an_episode()[0]
    dataset = reverb.TrajectoryDataset(
        replay.server_address,
        "t",
        dtypes={name: tf.as_dtype(value.dtype) for name, value in one.items()},
        shapes={name: tf.TensorShape((STEPS, *value.shape)) for name, value in one.items()},
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
    """A program of this kind: how many trajectories, and how many batches, a second."""
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
    insert, sample = globals()[f"insert_{kind}"], globals()[f"sample_{kind}"]
    program.add_node(lp.PyNode(in_turn, insert, sample, replay, seconds), label="learner")
    found = lp.run(program, "local_mp", terminal="output_to_files")["learner"][0]
    return dict(zip(TITLES, found, strict=False))


def in_turn(insert: Any, sample: Any, replay: Any, seconds: float) -> tuple[float, ...]:
    insert(replay, 1, seconds / 2)  # the table is full, and memory was touched
    return insert(replay, 1, seconds), insert(replay, AT_A_TIME, seconds), sample(replay, seconds)


def main() -> None:
    """Prints what was measured."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--seconds", type=float, default=2.0, help="for each figure of a round")
    parser.add_argument("--reverb", metavar="PYTHON", help="an interpreter with dm-reverb")
    parser.add_argument("--only", help=argparse.SUPPRESS)  # in the interpreter with reverb
    parser.add_argument("--quick", action="store_true", help="one short round, to see that it runs")
    parser.add_argument("--json", type=Path, help="where to write the figures")
    options = parser.parse_args()
    if options.quick:
        options.rounds, options.seconds = 1, 0.2
    if options.only:
        print(json.dumps(measure(options.only, options.seconds)))
        return
    kinds = ["ours", "plain", *["reverb"] * bool(options.reverb)]
    rounds: dict[str, list[dict[str, float]]] = {kind: [] for kind in kinds}
    for number in range(options.rounds):
        for kind in kinds[number % len(kinds) :] + kinds[: number % len(kinds)]:
            if kind == "reverb":
                command = [
                    options.reverb,
                    __file__,
                    "--only=reverb",
                    f"--seconds={options.seconds}",
                ]
                done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
                rounds[kind].append(json.loads(done.stdout.splitlines()[-1]))
            else:
                rounds[kind].append(measure(kind, options.seconds))
    names = "".join(f"{kind:>10}" for kind in kinds)
    print(f"{'per second, median':32}{names}   ours ÷ plain")
    figures: dict[str, dict[str, float]] = {
        title: {kind: statistics.median(r[title] for r in rounds[kind]) for kind in kinds}
        for title in TITLES
    }
    _, many, batches = TITLES
    figures["both: 8 inserted, one batch"] = {
        kind: 1 / (AT_A_TIME / figures[many][kind] + 1 / figures[batches][kind]) for kind in kinds
    }
    for title, by_kind in figures.items():
        shown = "".join(f"{by_kind[kind]:10.0f}" for kind in kinds)
        print(f"{title:32}{shown}{by_kind['ours'] / by_kind['plain']:15.1f}")
    if not options.reverb:
        print("reverb was not measured: it needs --reverb PYTHON")
    if options.json:
        options.json.write_text(json.dumps(figures, indent=2))


if __name__ == "__main__":
    main()
