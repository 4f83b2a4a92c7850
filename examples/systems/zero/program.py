"""Ranks that train at one of ZeRO's stages.

rank-0 ◀── parts ──▶ rank-1 ◀── parts ──▶ … rank-n    each with each
   │                    │                     │
   └──────state──▶ group_dir ◀──state─────────┘       read by the next generation, or launch
"""

from collections.abc import Sequence

import launchpad as lp
from examples._shared.problem import Problem
from examples.systems.zero.rank import run


def make_program(
    problem: Problem,
    ranks: int,
    micro_batches: int = 1,
    stages: Sequence[int] = (3,),
    save_every: int = 0,
    victim: int | None = None,
) -> lp.Program:
    """Return a graph with a group of ranks for each stage. If one dies, its group is started again.

    Args:
        save_every: The steps from checkpoint to checkpoint. With 0, ranks neither save nor resume.
        victim: A rank that is killed once, after the first checkpoint.
    """
    n_rows = len(problem.batch(0))
    if n_rows % (ranks * micro_batches):
        parts = f"{ranks} ranks with {micro_batches} micro-batches of one size"
        raise ValueError(f"a batch of {n_rows} rows can't be cut for {parts}")
    program = lp.Program("zero")
    again = lp.RestartPolicy(scope="group")
    for stage in stages:
        with program.group(f"stage-{stage}", restart=again, preload=["examples.systems.zero.rank"]):
            for _ in range(ranks):
                arguments = (problem, micro_batches, stage, save_every, victim)
                program.add_node(lp.CollectiveNode(run, *arguments))
    return program
