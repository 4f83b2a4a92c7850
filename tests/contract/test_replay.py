"""Replay on every backend: actors write, a learner samples and sets priorities."""

from __future__ import annotations

import launchpad as lp
from launchpad import replay
from tests.helpers import replay_nodes

DEADLINE_S = 90


def test_actors_write_and_a_learner_samples_as_the_limiter_lets_them(launch_type: str) -> None:
    ratio = replay.SampleToInsertRatio(4, min_size_to_sample=40, error_buffer=400)
    tables = [
        replay.Table("transitions", replay.Prioritized(0.6), replay.Fifo(), 500, 0, ratio),
        replay.Table("sequences", replay.Uniform(), replay.MinHeap(), 10),
        replay.Table.queue("results", 4),
    ]
    program = lp.Program("replay")
    node = program.add_node(lp.ReplayNode(tables), label="replay")
    with program.group("actor"):
        for _ in range(2):
            program.add_node(lp.PyNode(replay_nodes.act, node, 2))
    program.add_node(lp.PyNode(replay_nodes.learn, node, 20), label="learner")
    program.add_node(lp.PyNode(lp.wait_for_stop), label="keeps")

    with lp.launch(program, launch_type) as running:
        acted = running.results("actor", DEADLINE_S)
        ((seen, shape, results),) = running.results("learner", DEADLINE_S)
        info = running.client("replay").info()

    assert acted == [2, 2]
    assert seen >= 20 * 32 * 0.9  # some may have been removed before they were updated
    assert shape == (16, 10, 84, 84)
    assert results == [0, 0, 1, 1]
    assert info["transitions"].inserts == 4 * 32  # of 30 steps each, and 2 shorter ones at the end
    assert info["sequences"].size == 10
    assert (info["results"].inserts, info["results"].size) == (4, 0)
