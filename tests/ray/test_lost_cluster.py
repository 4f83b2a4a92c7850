"""The cluster goes away under a program: it fails, and says so."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import launchpad as lp
from launchpad.errors import LaunchError
from launchpad.launch.backends.ray import cluster
from tests import nodes

pytest.importorskip("ray")

ROOT = Path(__file__).parents[2]
DEADLINE_S = 100.0

# Ray ends a process whose cluster has gone before long, so it needs one of its own. Disconnected from
# inside it is as lost, but for that.
SCRIPT = """
import ray
import launchpad as lp
from tests import nodes
from tests.waiting import until

program = lp.Program("lost")
program.add_node(lp.PyNode(nodes.sleep_for_ever), label="sleeper")
running = lp.launch(program, "ray")
until(lambda: running.status()[0].state == "running")
ray.shutdown()
running.stop()
running.wait()
"""


def test_a_program_whose_cluster_is_gone_ends_and_says_so() -> None:
    environment = {k: v for k, v in os.environ.items() if k != "RAY_ADDRESS"}

    done = subprocess.run(
        [sys.executable, "-c", SCRIPT],
        cwd=ROOT,
        env={**environment, "PYTHONPATH": str(ROOT)},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
        check=False,
    )

    assert done.returncode != 0
    assert re.search(r"sleeper-0 lost in run .*(the Ray cluster cannot|has died)", done.stderr), (
        done.stderr
    )


@pytest.mark.leaks_by_nature  # what Ray has begun before it noticed
def test_an_address_that_does_not_answer_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    if cluster._users:
        pytest.skip("this process is connected to a cluster that other tests share")
    monkeypatch.setenv("RAY_ADDRESS", "127.0.0.1:1")
    program = lp.Program("nowhere")
    program.add_node(lp.CourierNode(nodes.Counter), label="counter")

    with pytest.raises(LaunchError, match=r"RAY_ADDRESS=127\.0\.0\.1:1"):
        lp.launch(program, "test_ray")
