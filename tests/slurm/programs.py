"""Plans of programs for Slurm. Nothing of them is started."""

from __future__ import annotations

from typing import Any

import launchpad as lp


def plan_of(*groups: tuple[str, int, lp.Resources], **options: Any) -> lp.LaunchPlan:
    """Return the plan of a program with these groups: label, number of workers, resources of each."""
    program = lp.Program("train")
    for label, number, resources in groups:
        with program.group(label, resources=resources):
            for _ in range(number):
                program.add_node(lp.PyNode(print))
    return lp.plan(program, "slurm", **options)
