"""Programs of one node, and how they fail."""

from __future__ import annotations

from typing import Any

import pytest

import launchpad as lp

DEADLINE_S = 60.0


def single(
    node: lp.Node[Any], label: str = "worker", restart: lp.RestartPolicy | None = None
) -> lp.Program:
    """One node and nothing else."""
    program = lp.Program("single")
    with program.group(label, restart=restart):
        program.add_node(node)
    return program


def failure_of(program: lp.Program, launch_type: str = "test_mp") -> lp.ProgramFailed:
    """Runs the program, which fails."""
    with pytest.raises(lp.ProgramFailed) as caught:
        lp.testing.run(program, DEADLINE_S, launch_type)
    return caught.value
