"""Run it: python -m examples.acme --lp_launch_type=local_mp."""

from absl import app, flags

import launchpad as lp
from examples._shared.checks import QUICK, done
from examples.acme import claims
from examples.acme.alone import run_alone
from examples.acme.program import make_program
from examples.acme.replay import SAMPLES_PER_INSERT

ALONE = flags.DEFINE_bool("alone", False, "Run the agent in this process only, without launchpad.")

WANTED, LIMIT = 490.0, 60_000
CRASHES = (60, 80, 110, 130, 160)
PRELOAD = ["numpy", "gymnasium.envs.classic_control"]


def main(_: list[str]) -> None:
    """Train the agent alone and spread, the last one with a learner that is killed."""
    seeds = [0] if QUICK.value else [4, 3, 2, 1, 0]
    claims.check_solved("alone", [run_alone(seed, WANTED, LIMIT) for seed in seeds])
    if not ALONE.value:
        spread(seeds)
    done()


def spread(seeds: list[int]) -> None:
    programs = [make_program(seed, WANTED, LIMIT) for seed in seeds[:-1]]
    programs.append(make_program(seeds[-1], WANTED, LIMIT, CRASHES))
    results = [lp.run(program, preload=PRELOAD) for program in programs]
    runs = [each["evaluator"][0] for each in results]
    claims.check_solved("spread", runs)
    claims.check_ratio(runs[-1].experience["transitions"], SAMPLES_PER_INSERT)
    claims.check_age([age for each in results for age in each["actor"]])
    claims.check_killed(results[-1]["learner"][0], CRASHES, runs[-1])


if __name__ == "__main__":
    app.run(main)
