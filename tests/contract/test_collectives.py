"""Collectives on every backend: all operations, and a rank that dies in the middle."""

from __future__ import annotations

from pathlib import Path

import numpy as np

import launchpad as lp
from launchpad.collectives.script import Script
from tests.helpers import collective_nodes

DEADLINE_S = 120


def test_ranks_compute_together(launch_type: str) -> None:
    program = lp.Program("together")
    with program.group("rank"):
        for _ in range(3):
            program.add_node(lp.CollectiveNode(collective_nodes.use_all, "courier"))
    program.add_node(lp.PyNode(lp.wait_for_stop), label="keeps")

    with lp.launch(program, launch_type) as running:
        results = running.results("rank", DEADLINE_S)
    edges = running.edges()

    for rank, found in enumerate(results):
        x = np.arange(6, dtype=np.float32).reshape(2, 3)
        np.testing.assert_array_equal(found["sum"], 3 * x + 3)
        np.testing.assert_array_equal(found["mean"], x + 1)
        assert found["sum"].tobytes() == results[0]["sum"].tobytes()
        assert found["large"] == 6.0
        number, (total, array) = found["tree"]["b"]
        assert (number, total, array.tolist()) == (3, 3.0, [3])
        assert found["part"].tolist() == [6.0 * rank, 6.0 * rank + 3]
        assert [each.tolist() for each in found["gathered"]] == [[0], [1], [2]]
        assert found["spread"].tolist() == [2, 2, 2]
        assert [each.tolist() for each in found["swapped"]] == [[0, rank], [1, rank], [2, rank]]
        assert found["object"] == {"of": 1}
        assert found["objects"] == [("rank", 0), ("rank", 1), ("rank", 2)]
        assert found["at_root"] == (None if rank else [0, 1, 2])
        assert found["half"] == ((0, 1, 1) if rank == 1 else (rank // 2, 2, 2))
        assert (found["me"][:3], found["me"][4]) == ((rank, 3, 1), "rank")
    assert edges.total(caller="rank-1", server="rank-0", method="meet").calls > 0


def test_ranks_start_again_together_when_one_dies_and_go_on_where_they_were(
    launch_type: str,
) -> None:
    how = "raise" if launch_type == "test_mt" else "kill"

    program = lp.ranks(collective_nodes.count_to_ten, 3, how)
    with lp.launch(program, launch_type) as running:
        results = running.results("rank", DEADLINE_S)

    assert results in ([(5, 2, 2, 3)] * 3, [(6, 2, 2, 3)] * 3), "rank 0 may not have saved 6"


SCRIPT = """
import os, signal, sys, time
if os.environ["TORCHELASTIC_RESTART_COUNT"] == "0":
    if os.environ["RANK"] == "1":
        os.kill(os.getpid(), signal.SIGKILL)
    time.sleep(100)
print(__name__, os.environ["RANK"], "of", os.environ["WORLD_SIZE"], sys.argv[1:])
"""


def test_the_text_of_a_script_comes_to_its_ranks_and_runs_again_when_one_dies(
    process_launch_type: str, tmp_path: Path
) -> None:
    path = tmp_path / "script.py"
    path.write_text(SCRIPT)
    script = Script.of_file(str(path), ["word"])
    path.unlink()

    running = lp.testing.run(lp.ranks(script, 2), DEADLINE_S, process_launch_type)

    for rank in (0, 1):
        assert f"__main__ {rank} of 2 ['word']" in running.logs(f"rank-{rank}")
