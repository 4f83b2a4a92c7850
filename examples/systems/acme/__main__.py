"""Run it: python -m examples.systems.acme --lp_launch_type=local_mp."""

from absl import app, flags

from examples._shared.checks import QUICK, done
from examples.systems.acme import claims
from examples.systems.acme.alone import run_alone
from examples.systems.acme.builders import BUILDERS
from examples.systems.acme.evaluator import Goal
from examples.systems.acme.program import run_spread

ALONE = flags.DEFINE_bool("alone", False, "Run the agents in this process only, without a graph.")

CRASHES = (60, 80, 110, 130, 160)
SOLVED = Goal(claimed=475.0, wanted=497.0, episodes=60)  # of 500; solved, as gymnasium has it
QUICK_GOAL = Goal(claimed=195.0, wanted=300.0, episodes=20)


def main(_: list[str]) -> None:
    """Train both agents, alone and spread; in the last run of DQN the learner is killed five times."""
    seeds, goal = (range(1), QUICK_GOAL) if QUICK.value else (range(5), SOLVED)
    claims.check_vtrace()
    for name, builder in BUILDERS.items():
        alone = [run_alone(builder, seed, goal) for seed in seeds]
        claims.check_solved(f"{name}, alone", goal.claimed, alone)
        if not ALONE.value:
            crashes = CRASHES if name == "dqn" else ()
            results = [
                run_spread(builder, seed, goal, crashes if seed == seeds[-1] else ())
                for seed in seeds
            ]
            claims.check_solved(
                f"{name}, spread", goal.claimed, [each.evaluated for each in results]
            )
            claims.check_age(name, [age for each in results for age in each.ages])
            reports = [each.report for each in results]
            if name == "dqn":
                claims.check_ratio(reports)
                claims.check_killed(results[-1].begun, crashes, results[-1].evaluated)
            else:
                claims.check_queue(reports, [each.evaluated for each in results])
    done()


if __name__ == "__main__":
    app.run(main)
