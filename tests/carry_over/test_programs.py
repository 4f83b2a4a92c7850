"""dm-launchpad's own examples, written anew from their descriptions, with the imports that they have."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PROGRAMS = {
    "hello_world": ["Hello World!!!"],
    "consumer_producers": ["Results: [0, 1]"],
    "batching": [f"client {i} got {i * i}" for i in range(5)],
    "program_wait": ["the first has ended", "all have ended", "the program has ended"],
}


@pytest.mark.parametrize("launch_type", ["local_mt", "local_mp"])
@pytest.mark.parametrize("name", PROGRAMS)
def test_an_example_runs_as_it_is(name: str, launch_type: str) -> None:
    command = [
        sys.executable,
        "-m",
        f"tests.carry_over.programs.{name}",
        f"--lp_launch_type={launch_type}",
    ]

    done = subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, timeout=100, check=False
    )

    assert done.returncode == 0, done.stdout + done.stderr
    for line in PROGRAMS[name]:
        assert line in done.stdout
