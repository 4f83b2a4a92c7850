"""One client out of many, and large arrays by futures, on every backend."""

from __future__ import annotations

import launchpad as lp
from tests.helpers import shard_nodes
from tests.helpers.shard_nodes import SIZE

DEADLINE_S = 90


def test_shards_are_used_as_one_and_large_arrays_go_to_all(launch_type: str) -> None:
    program = lp.Program("shards")
    with program.group("shard"):
        shards = [
            program.add_node(lp.CourierNode(shard_nodes.Shard)) for _ in range(shard_nodes.SHARDS)
        ]
    program.add_node(lp.PyNode(shard_nodes.use, shards), label="user")

    with lp.launch(program, launch_type) as running:
        found = running.results("user", DEADLINE_S)[0]

    thirds = [high - low for low, high in (shard_nodes.PARTITION.bounds(i, 3) for i in range(3))]
    assert found == {
        "dense": True,
        "sparse": True,
        "one": SIZE - 0.5,
        "failures": ["shard-0 has none", 3],
        "rows": True,
        "asked": [0, 1, 2, 0, 1, 2, 0, 0, 0, 0],
        "sums": [
            *(3.0 * third for third in thirds),
            *[2.0 * SIZE] * 3,
            *(SIZE * i for i in range(4, 8)),
        ],
        "again": [-2.0 * SIZE] * 3,
    }
