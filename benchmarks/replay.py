"""How quick a ReplayNode is beside a replay buffer of plain calls: `python benchmarks/replay.py`.

Trajectories of 20 steps, each an observation of 84×84 bytes, an action, a reward and a discount, are inserted
into a table and sampled from it uniformly, in batches of 32 that arrive as arrays.

ours        `lp.ReplayNode`: a SequenceWriter, and `sample_batch`
plain       a CourierNode that keeps what it is given in a list: `insert(steps)`, a list of dicts of arrays,
            and `sample(n)`, whose steps the caller stacks
reverb      `lp.ReverbNode`, with `--reverb PYTHON`, an interpreter that has dm-reverb and launchpad: a
            TrajectoryWriter, and a TrajectoryDataset for sampling

In one run, taking turns; the median of the rounds. A step is counted from the environment's arrays to the
server, and from there to the learner's arrays.
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import numpy as np

import launchpad as lp

STEPS, BATCH, SIZE = 20, 32, 1000


def steps_of_an_episode() -> list[dict[str, Any]]:
    rng = np.random.default_rng(0)
    return [
        {
            "observation": rng.integers(0, 255, (84, 84), np.uint8),
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

    def sample(self, n: int) -> list[Any]:
        return self._random.choices(self._items, k=n)


def rate(act: Callable[[], object], seconds: float) -> float:
    """How often a second it can be done."""
    began, times = time.perf_counter(), 0
    while (took := time.perf_counter() - began) < seconds:
        act()
        times += 1
    return times / took


def insert_plain(replay: Any, seconds: float) -> float:
    steps = steps_of_an_episode()
    return rate(lambda: replay.insert(steps), seconds)


def sample_plain(replay: Any, seconds: float) -> float:
    def sample() -> dict[str, Any]:
        items = replay.sample(BATCH)
        return {
            name: np.stack([np.stack([step[name] for step in item]) for item in items])
            for name in items[0][0]
        }

    assert sample()["observation"].shape == (BATCH, STEPS, 84, 84)
    return rate(sample, seconds)


def insert_ours(replay: Any, seconds: float) -> float:
    steps = steps_of_an_episode()
    with replay.sequence_writer("t", STEPS, STEPS) as writer:

        def insert() -> None:
            for step in steps:
                writer.append(step)

        return rate(insert, seconds)


def sample_ours(replay: Any, seconds: float) -> float:
    batch = replay.sample_batch("t", BATCH)
    assert batch.data["observation"].shape == (BATCH, STEPS, 84, 84)
    return rate(lambda: replay.sample_batch("t", BATCH), seconds)


def insert_reverb(replay: Any, seconds: float) -> float:
    steps = steps_of_an_episode()
    with replay.trajectory_writer(num_keep_alive_refs=STEPS) as writer:

        def insert() -> None:
            for step in steps:
                writer.append(step)
            trajectory = {name: column[-STEPS:] for name, column in writer.history.items()}
            writer.create_item("t", 1.0, trajectory)
            writer.flush(block_until_num_items=10)

        return rate(insert, seconds)


def sample_reverb(replay: Any, seconds: float) -> float:
    import reverb
    import tensorflow as tf

    one = steps_of_an_episode()[0]
    dataset = reverb.TrajectoryDataset(
        replay.server_address,
        "t",
        dtypes={name: tf.as_dtype(value.dtype) for name, value in one.items()},
        shapes={name: (STEPS, *value.shape) for name, value in one.items()},
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
    return dict(zip(("insert", "sample"), found, strict=True))


def in_turn(insert: Any, sample: Any, replay: Any, seconds: float) -> tuple[float, float]:
    return insert(replay, seconds), sample(replay, seconds)


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
    print(
        f"{'per second, median':22}" + "".join(f"{kind:>10}" for kind in kinds) + "   ours ÷ plain"
    )
    figures = {}
    for what, title in (("insert", "trajectories inserted"), ("sample", "batches sampled")):
        medians = {k: statistics.median(r[what] for r in rounds[k]) for k in kinds}
        ratio = medians["ours"] / medians["plain"]
        figures[what] = {**medians, "ours ÷ plain": ratio}
        print(f"{title:22}" + "".join(f"{m:10.0f}" for m in medians.values()) + f"{ratio:15.1f}")
    if not options.reverb:
        print("reverb was not measured: it needs --reverb PYTHON")
    if options.json:
        options.json.write_text(json.dumps(figures, indent=2))


if __name__ == "__main__":
    main()
