"""Launches over a slow line: a host that is busy with a large message keeps its lease, and its workers."""

from __future__ import annotations

import re

import pytest

from launchpad.launch.backends.remote.lease import ENDED_AFTER_S
from tests.hosts import test_slurm_launches, test_ssh_launches
from tests.hosts.network import Network
from tests.hosts.slurm import Slurm
from tests.hosts.sshd import Sshd

MBIT = 20
SIZE = 45 << 20
"""The bytes that the line carries in about 19 s."""

FASTER = 2
"""The line of Slurm is this many times faster. Leases of nodes that join need at least 20 Mbit/s."""

DEADLINE_S = 120.0

SCRIPT = """
import os
import time
import numpy as np
import launchpad as lp

def make():
    content = os.urandom(SIZE)
    return time.time(), content

def take(small, large, began_at):
    show(large.nbytes + sum(array.nbytes for array in small), began_at)

def show(n_bytes, began_at):
    print(n_bytes, "bytes after", time.time() - began_at, "s")

def launch_maker(*place, **options):
    program = lp.Program("large")
    program.add_node(lp.PyNode(make), label="maker")
    with lp.launch(program, *place, **options) as running:
        (began_at, content), = running.results("maker", timeout_s=100)
        show(len(content), began_at)

def launch_taker(*place, **options):
    random = np.random.default_rng(0)
    small = [random.integers(0, 255, SIZE // 200, np.uint8) for _ in range(100)]
    large = random.integers(0, 255, SIZE // 2, np.uint8)
    program = lp.Program("large")
    program.add_node(lp.PyNode(take, small, large, time.time()), label="taker")
    lp.launch(program, *place, **options)
"""
ON_SSH = "'ssh', hosts=['h2']"
ON_SLURM = "'slurm', sbatch_options=['--nodelist=h2']"


def check(output: str, size: int) -> None:
    """Fail unless `size` bytes have arrived, later than a lease ends, and no worker was lost."""
    assert "lost" not in output
    arrived = re.search(r"(\d+) bytes after (\S+) s", output)
    assert arrived, output
    assert int(arrived[1]) > size * 0.99
    assert float(arrived[2]) > ENDED_AFTER_S


@pytest.mark.parametrize("launch", ["launch_maker", "launch_taker"])
def test_on_ssh_a_large_message_over_a_slow_line_costs_no_worker_its_lease(
    ssh_network: Network, sshd: Sshd, launch: str
) -> None:
    launcher = test_ssh_launches.Launcher(ssh_network, sshd)
    ssh_network.hosts[1].slow_down(mbit=MBIT)

    with launcher.start(f"SIZE = {SIZE}\n{SCRIPT}\n{launch}({ON_SSH})") as process:
        output, _ = process.communicate(timeout=DEADLINE_S)

    assert process.returncode == 0, output
    check(output, SIZE)


@pytest.mark.parametrize("launch", ["launch_maker", "launch_taker"])
def test_on_slurm_a_large_message_over_a_slow_line_costs_no_worker_its_lease(
    slurm_network: Network, slurm: Slurm, launch: str
) -> None:
    launcher = test_slurm_launches.Launcher(slurm_network, slurm)
    slurm_network.hosts[1].slow_down(mbit=MBIT * FASTER)
    size = SIZE * FASTER

    with launcher.start(f"SIZE = {size}\n{SCRIPT}\n{launch}({ON_SLURM})") as process:
        process.wait(DEADLINE_S)

    output = launcher.output.read_text()
    assert process.returncode == 0, output
    check(output, size)
