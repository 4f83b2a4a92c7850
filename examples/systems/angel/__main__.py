"""Run it: python -m examples.systems.angel --lp_launch_type=local_mp."""

from typing import Any

import numpy as np
from absl import app

import launchpad as lp
from examples._shared.checks import QUICK, done
from examples.systems.angel import claims, oracle, text
from examples.systems.angel.claims import Trial
from examples.systems.angel.program import ASP, BSP, make_program
from examples.systems.angel.regression import LogisticRegression

WORKERS = 4
STALENESS = 1.0
RATE = 100.0
UNIT_S = 0.002
KILLS = range(2, 12)


def main(_: list[str]) -> None:
    """Train in step, with some staleness, and without any limit; check what the paper claims.

    Workers also train in groups, and a shard is killed ten times.
    """
    training, held_out = text.load()
    clocks = 16 if QUICK.value else 48
    shares = [training[np.arange(i, len(training.labels), WORKERS)] for i in range(WORKERS)]
    tasks = [
        LogisticRegression(text.SIZE, RATE, clocks, UNIT_S, own, i) for i, own in enumerate(shares)
    ]
    alone = oracle.train(tasks)

    def train(name: str, staleness: float, **how: Any) -> Trial:
        running = lp.launch(make_program(tasks, staleness, **how), preload=["numpy"])
        running.wait()
        trial = Trial(name, staleness, running.results("worker"), running.edges())
        claims.check_gaps(trial)
        return trial

    by_one, by_two, by_four = [
        train(f"BSP S={shards}", BSP, shards=shards, kills=KILLS if shards == 2 else ())
        for shards in (1, 2, 4)
    ]
    claims.check_serial([by_one, by_two, by_four], alone)
    claims.check_killed(by_two, len(KILLS))
    ssp = train("SSP", STALENESS)
    asp = train("ASP", ASP)
    hybrid = train("SSP in groups of 2", STALENESS, group_size=2)
    claims.check_psfuncs([by_one, by_four])
    claims.check_pulled([by_one, by_four, ssp, asp, hybrid])
    claims.check_time(by_one, ssp, asp)
    claims.check_groups(hybrid, ssp)
    claims.check_accuracy([by_one, ssp, asp, hybrid], held_out)
    done()


if __name__ == "__main__":
    app.run(main)
