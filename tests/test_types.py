"""What a type checker knows of a program."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

SNIPPET = """
import launchpad as lp

class Learner:
    def step(self, x: int) -> int:
        return x

program = lp.Program("typed")
node = lp.CourierNode(Learner)
reveal_type(node)
handle = program.add_node(node, label="learner")
reveal_type(handle)
reveal_type(handle.dereference())
reveal_type(program.add_node(lp.CacherNode(handle, 1, 2), label="cacher"))
reveal_type(program.add_node(lp.PyNode(print), label="py"))
reveal_type(lp.launch(program))
program.add_node(Learner, label="no node")
"""


@pytest.mark.slow
def test_handles_and_clients_are_typed_by_what_they_stand_for(tmp_path: Path) -> None:
    snippet = tmp_path / "snippet.py"
    snippet.write_text(SNIPPET)
    root = Path(__file__).resolve().parents[1]
    command = [sys.executable, "-m", "mypy", "--strict", "--no-incremental", str(snippet)]

    done = subprocess.run(command, capture_output=True, text=True, cwd=root, check=False)

    revealed = [
        line.partition('"')[2].rstrip('"')
        for line in done.stdout.splitlines()
        if "Revealed" in line
    ]
    assert [name.replace("launchpad.", "") for name in revealed] == [
        "nodes.courier.CourierNode[snippet.Learner]",
        "nodes.courier.CourierHandle[snippet.Learner]",
        "courier.client.Client[snippet.Learner]",
        "nodes.courier.CourierHandle[snippet.Learner]",
        "nodes.python.PyHandle",
        "launch.running.Running",
    ], done.stdout
    assert done.stdout.count("error:") == 1, done.stdout
    assert 'expected "Node[' in done.stdout
