"""Run it: python -m examples.systems.angel --lp_launch_type=local_mp."""

from typing import Any

from absl import app, flags

import launchpad as lp
from examples._shared.checks import QUICK, done, phase
from examples.systems.angel import claims, oracle, text
from examples.systems.angel.claims import PSFUNCS, Trial
from examples.systems.angel.program import ASP, BSP, make_program

WORKERS = flags.DEFINE_integer("workers", 4, "How many workers; an even number.")
CLOCKS = flags.DEFINE_integer("clocks", 64, "How often each worker pushes; 40 if --quick.")
STALENESS = flags.DEFINE_float("staleness", 1, "How many clocks workers may be apart in SSP.")
KILLS = range(2, 12)


def main(_: list[str]) -> None:
    """Train in step, with some staleness, and without any limit; in groups; and with a shard killed."""
    training, held_out = text.load()
    n = WORKERS.value
    clocks = 40 if QUICK.value else CLOCKS.value
    tasks = [text.Passages(text.SIZE, 30.0, clocks, training[i::n], i) for i in range(n)]

    def train(name: str, staleness: float, **how: Any) -> Trial:
        phase(f"{name}, {n} workers")
        program = make_program(tasks, staleness, psfuncs=PSFUNCS, **how)
        running = lp.launch(program, preload=["numpy"])
        running.wait()
        trial = Trial(name, staleness, running.results("worker"), running.edges())
        claims.check_gaps(trial)
        claims.check_accuracy(trial, held_out)
        return trial

    bsp = train("BSP on 1 shard", BSP, shards=1)
    how = {"group_size": 2, "shards": 4, "kills": KILLS}
    killed = train("BSP in groups of 2 on 4 shards, one of which is killed", BSP, **how)
    claims.check_serial([bsp, killed], oracle.train(tasks))
    claims.check_killed(killed, len(KILLS))
    claims.check_psfuncs([bsp, killed])
    ssp = train("SSP", STALENESS.value)
    asp = train("ASP", ASP)
    claims.check_time(bsp, ssp, asp)
    hybrid = train("SSP in groups of 2", STALENESS.value, group_size=2)
    claims.check_groups(hybrid, ssp)
    claims.check_pulled([bsp, ssp, asp, hybrid])
    claims.draw(bsp)
    claims.draw(ssp)
    done()


if __name__ == "__main__":
    app.run(main)
