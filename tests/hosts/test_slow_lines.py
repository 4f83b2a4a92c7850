"""Launches over a slow line: a host that is busy with a large message keeps its lease, and its workers."""

from __future__ import annotations

import re

import pytest

from launchpad.launch.backends.remote.lease import ENDED_AFTER_S
from tests.hosts.network import Network
from tests.hosts.sshd import Sshd
from tests.hosts.test_ssh_launches import Launcher

MBIT = 20
SIZE = 45 << 20
"""What the line carries in about 19 s."""

RESULT = f"""
import os
import time
import launchpad as lp

def make():
    content = os.urandom({SIZE})
    return time.time(), content

program = lp.Program("large")
program.add_node(lp.PyNode(make), label="maker")
with lp.launch(program, "ssh", hosts=["h2"]) as running:
    (began_at, content), = running.results("maker", timeout_s=100)
    print(len(content), "bytes after", time.time() - began_at, "s")
"""

CONSTANTS = f"""
import time
import numpy as np
import launchpad as lp

def take(small, large, began_at):
    n_bytes = large.nbytes + sum(array.nbytes for array in small)
    print(n_bytes, "bytes after", time.time() - began_at, "s")

random = np.random.default_rng(0)
small = [random.integers(0, 255, {SIZE} // 200, np.uint8) for _ in range(100)]
large = random.integers(0, 255, {SIZE} // 2, np.uint8)
program = lp.Program("large")
program.add_node(lp.PyNode(take, small, large, time.time()), label="taker")
lp.launch(program, "ssh", hosts=["h2"])
"""


@pytest.fixture
def launcher(ssh_network: Network, sshd: Sshd) -> Launcher:
    return Launcher(ssh_network, sshd)


@pytest.mark.parametrize("script", [RESULT, CONSTANTS], ids=["result", "constants"])
def test_a_large_message_over_a_slow_line_costs_no_worker_its_lease(
    launcher: Launcher, script: str
) -> None:
    launcher.network.hosts[1].slow_down(mbit=MBIT)

    with launcher.start(script) as process:
        output, _ = process.communicate(timeout=120)

    assert process.returncode == 0, output
    assert "lost" not in output
    arrived = re.search(r"(\d+) bytes after (\S+) s", output)
    assert arrived, output
    assert int(arrived[1]) > SIZE * 0.99
    assert float(arrived[2]) > ENDED_AFTER_S
