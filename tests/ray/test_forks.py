"""A process that is forked after a launch on Ray."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.helpers import scripts

pytestmark = pytest.mark.slow

SCRIPT = """
import multiprocessing
import launchpad as lp

def double(number):
    return 2 * number

def launch(number):
    program = lp.Program("forked")
    program.add_node(lp.PyNode(double, number), label="worker")
    try:
        return lp.run(program, "ray")["worker"]
    except lp.LaunchError as error:
        return str(error)

if __name__ == "__main__":
    print(launch(1))
    with multiprocessing.get_context("fork").Pool(1) as pool:
        print(pool.map(launch, [2]))
"""


def test_a_launch_on_ray_is_refused_in_a_child_that_was_forked_after_one(tmp_path: Path) -> None:
    pytest.importorskip("ray")

    done = scripts.run(scripts.write(tmp_path, SCRIPT))

    assert done.returncode == 0, done.stdout + done.stderr
    assert "[2]" in done.stdout
    assert "was forked from one" in done.stdout
