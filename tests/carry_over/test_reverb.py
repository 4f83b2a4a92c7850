"""lp.ReverbNode on the real Reverb: `make test-carry-over` runs this, in an environment that has it."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any

import pytest

import launchpad as lp

pytest.importorskip("reverb", reason="dm-reverb has an environment of its own")
import reverb
import tensorflow as tf

from tests.helpers import scripts
from tests.waiting import until

DEADLINE_S = 120.0
pytestmark = [pytest.mark.timeout(240), pytest.mark.leaks_by_nature]  # TensorFlow keeps threads
both = pytest.mark.parametrize("launch_type", ["test_mt", "test_mp"])


def make_tables() -> list[Any]:
    return [
        reverb.Table(
            name="replay",
            sampler=reverb.selectors.Uniform(),
            remover=reverb.selectors.Fifo(),
            max_size=100,
            rate_limiter=reverb.rate_limiters.MinSize(10),
            signature=tf.TensorSpec([], tf.int64),
        )
    ]


def insert(replay: Any, count: int) -> None:
    for i in range(count):
        replay.insert(i, {"replay": 1.0})


def sample(replay: Any, count: int) -> None:
    got = {int(s[0].data[0]) for s in replay.sample("replay", num_samples=count)}
    print("sampled", sorted(got), flush=True)
    assert got <= set(range(20))


@both
def test_what_actors_insert_a_learner_samples(launch_type: str) -> None:
    program = lp.Program("replay")
    replay = program.add_node(lp.ReverbNode(make_tables), label="replay")
    program.add_node(lp.PyNode(insert, replay, 20), label="actor")
    program.add_node(lp.PyNode(sample, replay, 50), label="learner")

    running = lp.testing.run(program, DEADLINE_S, launch_type)

    assert {s.worker: s.state for s in running.status()} == {
        "replay-0": "stopped",
        "actor-0": "succeeded",
        "learner-0": "succeeded",
    }


def train(replay: Any) -> None:
    """Samples until it is told to stop; it looks when it has waited for a second in vain."""
    dataset = reverb.TimestepDataset.from_table_signature(
        replay.server_address,
        "replay",
        max_in_flight_samples_per_worker=1,
        rate_limiter_timeout_ms=1000,
    )
    options = tf.data.Options()
    options.autotune.enabled = False
    while not lp.stop_event().is_set():
        print("it samples", flush=True)
        for _ in dataset.with_options(options).as_numpy_iterator():
            pass


@both
def test_a_server_goes_on_until_those_that_sample_have_ended(launch_type: str) -> None:
    program = lp.Program("starved")
    replay = program.add_node(lp.ReverbNode(make_tables), label="replay")
    program.add_node(lp.PyNode(train, replay), label="learner")

    with lp.launch(program, launch_type) as running:
        until(lambda: "it samples" in running.logs("learner"), DEADLINE_S)
        running.stop()

    assert {s.worker: s.state for s in running.status()} == {
        "replay-0": "stopped",
        "learner-0": "stopped",
    }


def checkpointer_in(folder: str) -> Any:
    return reverb.checkpointers.DefaultCheckpointer(folder)


@both
def test_tables_that_are_written_are_there_at_the_next_launch(
    launch_type: str, tmp_path: Path
) -> None:
    def launch(node: Any, *arguments: Any) -> lp.Running:
        program = lp.Program("kept")
        tables = lp.ReverbNode(make_tables, lambda: checkpointer_in(str(tmp_path)), 60.0)
        replay = program.add_node(tables, label="replay")
        program.add_node(lp.PyNode(node, replay, *arguments), label="user")
        return lp.testing.run(program, DEADLINE_S, launch_type)

    first = launch(insert, 20)
    assert "tables written to" in first.logs("replay")

    second = launch(sample, 50)
    assert "sampled" in second.logs("user")


def test_a_handle_is_a_client_in_the_launching_script() -> None:
    program = lp.Program("replay")
    replay = program.add_node(lp.ReverbNode(make_tables), label="replay")

    with lp.launch(program, "test_mp"):
        client = replay.dereference()
        insert(client, 3)
        assert client.server_info()["replay"].current_size == 3


@pytest.mark.endurance
@pytest.mark.timeout(1000)
@pytest.mark.parametrize("launch_type", ["local_mt", "local_mp"])
def test_a_dqn_in_the_manner_of_acme_learns_although_its_learner_is_killed(
    launch_type: str, tmp_path: Path
) -> None:
    pytest.importorskip("gymnasium")
    command = [sys.executable, "-m", "tests.carry_over.programs.dqn"]
    flags = [f"--lp_launch_type={launch_type}", f"--directory={tmp_path}"]

    done = scripts.run(command, *flags, cwd=scripts.ROOT, timeout_s=900)

    assert done.returncode == 0, done.stdout + done.stderr
    output = done.stdout

    assert "1 kills (seed 0): learner-0 × 1" in output
    assert "restored from learner.pickle" in output
    assert "the limit of 30000 steps is reached" in output
    steps, mean = re.findall(r"saved after (\d+) steps; return (\d+)", output)[0]
    assert int(steps) > 1000
    assert int(mean) >= 475
