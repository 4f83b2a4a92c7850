"""Run it: python -m examples.systems.angel --lp_launch_type=local_mp."""

from typing import Any

from absl import app, flags

import launchpad as lp
from examples._shared import passages
from examples._shared.checks import done, phase
from examples._shared.passages import Passages, Regression
from examples.systems.angel import claims
from examples.systems.angel.claims import PSFUNCS, Trial
from examples.systems.angel.program import ASP, BSP, make_program

WORKERS = flags.DEFINE_integer("workers", 4, "How many workers; an even number.")
STALENESS = flags.DEFINE_float("staleness", 1, "How many clocks workers may be apart in SSP.")
CLOCKS = 40
KILLS = range(2, 12)
IN_GROUPS = "BSP in groups of 2 on 4 shards, one of which is killed"


def main(_: list[str]) -> None:
    """Train in step, with some staleness, and without any limit; in groups; and with a shard killed."""
    training, held_out = passages.load()
    problem = Passages(training, Regression(), WORKERS.value, CLOCKS, 64, learning_rate=30.0)

    def train(name: str, staleness: float, **options: Any) -> Trial:
        phase(f"{name}, {problem.workers} workers")
        program = make_program(problem, staleness, psfuncs=PSFUNCS, unit_s=0.002, **options)
        running = lp.launch(program, preload=["numpy"])
        running.wait()
        trial = Trial(name, staleness, running.results("worker"), running.edges())
        claims.check_gaps(trial)
        claims.check_accuracy(trial, problem, held_out)
        return trial

    bsp = train("BSP on 1 shard", BSP, shards=1)
    killed = train(IN_GROUPS, BSP, group_size=2, shards=4, kills=KILLS)
    claims.check_serial(problem.train_alone(), [bsp, killed], len(KILLS))
    claims.check_psfuncs(bsp, killed)
    ssp = train("SSP", STALENESS.value)
    asp = train("ASP", ASP)
    claims.check_time(bsp, ssp, asp)
    hybrid = train("SSP in groups of 2", STALENESS.value, group_size=2)
    claims.check_groups(hybrid, ssp)
    claims.check_pulled(ssp, problem)
    done()


if __name__ == "__main__":
    app.run(main)
