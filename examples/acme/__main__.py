"""Run it: python -m examples.acme --lp_launch_type=local_mp."""

from absl import app, flags

from examples._shared.checks import QUICK, done
from examples.acme import claims
from examples.acme.alone import run_alone
from examples.acme.builders import BUILDERS
from examples.acme.program import run_spread

ALONE = flags.DEFINE_bool("alone", False, "Run the agents in this process only, without a graph.")

WANTED, LIMIT = 495.0, 100_000
CRASHES = (60, 80, 110, 130, 160)


def main(_: list[str]) -> None:
    """Train both agents, alone and spread; in the last run of DQN the learner is killed again and again."""
    seeds = range(1 if QUICK.value else 5)
    for name, builder in BUILDERS.items():
        runs = [run_alone(builder, seed, WANTED, LIMIT) for seed in seeds]
        claims.check_solved(f"{name}, alone", runs)
    claims.check_vtrace()
    if not ALONE.value:
        spread(seeds)
    done()


def spread(seeds: range) -> None:
    for name, builder in BUILDERS.items():
        crashes = CRASHES if name == "dqn" else ()
        results = [
            run_spread(builder, seed, WANTED, LIMIT, crashes if seed == seeds[-1] else ())
            for seed in seeds
        ]
        claims.check_solved(f"{name}, spread", [result.evaluated for result in results])
        claims.check_age(name, [age for result in results for age in result.ages])
        if name == "dqn":
            claims.check_ratio([result.report for result in results])
            claims.check_killed(results[-1].begun, crashes, results[-1].evaluated)
        else:
            claims.check_queue([result.report for result in results])


if __name__ == "__main__":
    app.run(main)
