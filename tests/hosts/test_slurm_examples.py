"""Examples on the three nodes of a Slurm job. Each checks its own answer."""

from __future__ import annotations

import sys

import pytest

from tests.hosts.network import Network
from tests.hosts.slurm import ON_ALL_NODES, Slurm


@pytest.mark.parametrize(
    ("example", "arguments", "answer"),
    [
        ("hello_world", [], "the greeting is right"),
        ("mapreduce", ["--pattern=[a-h]*.py"], "the counts agree"),
        ("ps", ["--mode=sync"], "the answer is right"),
        ("es", [], "the answer is right"),
        ("systems.horovod", ["--quick"], "the answer is right"),
    ],
)
def test_an_example_gives_the_right_answer_on_three_nodes(
    slurm_network: Network, slurm: Slurm, example: str, arguments: list[str], answer: str
) -> None:
    run = [sys.executable, "-m", f"examples.{example}", "--lp_launch_type=slurm", *arguments]

    done = slurm.run(slurm_network.hosts[0], [*ON_ALL_NODES, *run], timeout_s=100, check=False)

    assert done.returncode == 0, done.stdout + done.stderr
    assert answer in done.stdout
