"""A script with a cluster of its own, or none that it can use; and one whose cluster goes away."""

from __future__ import annotations

import os
import re
import subprocess
import sys

import pytest

from tests.helpers import scripts

pytest.importorskip("ray")

# Ray ends a process whose cluster has gone before long, so it needs one of its own. Disconnected from
# inside it is as lost, but for that.
SCRIPT = """
import os
import ray
import launchpad as lp
from tests import nodes
from tests.waiting import until

def be_refused(address, **options):
    os.environ["RAY_ADDRESS"] = address
    try:
        lp.launch(program, "ray", **options)
    except lp.LaunchError as error:
        print(error, flush=True)

program = lp.Program("lost")
program.add_node(lp.PyNode(nodes.sleep_for_ever), label="sleeper")
be_refused("ray://127.0.0.1:10001")
be_refused("127.0.0.1:1")
del os.environ["RAY_ADDRESS"]
running = lp.launch(program, "ray")
be_refused("", detach=True)
until(lambda: running.status()[0].state == "running")
ray.shutdown()
running.stop()
running.wait()
"""


def test_clusters_that_cannot_be_used_and_one_that_is_gone_are_named() -> None:
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT],
        env={**os.environ, "PYTHONPATH": str(scripts.ROOT)},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=100,
    )

    assert "cannot be used through Ray's client (ray://127.0.0.1:10001)" in done.stdout, done.stderr
    assert "no Ray cluster could be used at RAY_ADDRESS=127.0.0.1:1" in done.stdout
    assert "needs a Ray cluster that outlives this script" in done.stdout
    assert done.returncode != 0
    lost = r"sleeper-0 lost in run .*(the Ray cluster cannot|has died)"
    assert re.search(lost, done.stderr), done.stderr
