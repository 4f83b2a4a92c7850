"""Programs of benchmarks: one node many times, with nothing on the screen."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import launchpad as lp

FOREVER = lp.RestartPolicy(max_restarts=10**9, backoff=0)


def replicas(
    group: str, n: int, make_node: Callable[[], Any], restart: lp.RestartPolicy | None = None
) -> lp.Program:
    """Return a program of one group with `n` nodes."""
    program = lp.Program("benchmark")
    with program.group(group, restart=restart):
        for _ in range(n):
            program.add_node(make_node())
    return program


def launch(program: lp.Program, launch_type: str = "local_mp", **options: Any) -> lp.Running:
    """Launch a program whose workers print into files."""
    running: lp.Running = lp.launch(program, launch_type, terminal="output_to_files", **options)
    return running


def run(program: lp.Program, launch_type: str = "local_mp") -> Any:
    """Run a program whose workers print into files; return its results."""
    return lp.run(program, launch_type, terminal="output_to_files")
