"""Run it: python -m examples.systems.acme --lp_launch_type=local_mp."""

from absl import app, flags

import launchpad as lp
from examples._shared import pictures
from examples._shared.checks import QUICK, done, phase
from examples._shared.environments import measure
from examples._shared.networks import Dense
from examples.systems.acme import claims
from examples.systems.acme.agents import DQN, Impala
from examples.systems.acme.alone import run_alone
from examples.systems.acme.program import make_program

ENVIRONMENT = flags.DEFINE_string("environment", "CartPole-v1", "An environment of gymnasium.")
GOAL = flags.DEFINE_float("goal", None, "The wanted mean return. By default gymnasium's own.")
AGENTS = flags.DEFINE_list("agents", ["dqn", "impala"], "The agents to train.")
STEPS = flags.DEFINE_integer("steps", None, "How many steps the learner takes.", 200)
ACTORS = flags.DEFINE_integer("actors", 2, "How many actors a spread agent has.", 1)
SEEDS = flags.DEFINE_integer("seeds", 5, "How often to train. With --quick, it is once.", 1)

DEFAULT_STEPS = {"dqn": 8000, "impala": 800}
KILL_AT = 130  # between two saves, and after the first update of DQN's target


def main(_: list[str]) -> None:
    """Train the agents alone and spread, where the learner is killed; check what comes out."""
    environment = measure(ENVIRONMENT.value)
    goal = environment.solved if GOAL.value is None else GOAL.value
    if goal is None:
        raise app.UsageError(f"{environment.name} has no goal of its own; give one by --goal")
    if QUICK.value:
        goal = environment.random_return + 0.5 * (goal - environment.random_return)
    n_inputs = environment.n_inputs
    n_actions = environment.n_actions
    agents = {
        "dqn": DQN(environment, Dense((n_inputs, 64, 64, n_actions))),
        "impala": Impala(environment, Dense((n_inputs, 64, 64, n_actions + 1))),
    }
    curves = {}
    for name in AGENTS.value:
        agent = agents[name]
        steps = STEPS.value or DEFAULT_STEPS[name] // (5 if QUICK.value else 1)
        for seed in range(1 if QUICK.value else SEEDS.value):
            phase(f"{name} alone, in this process; seed {seed}")
            runs = {"alone": run_alone(agent, steps, seed)}
            phase(f"{name} with {ACTORS.value} actors, and a learner that is killed; seed {seed}")
            program = make_program(agent, steps, seed, ACTORS.value, KILL_AT)
            runs["spread"] = lp.run(program, preload=["numpy", "gymnasium"])["learner"][0]
            for where, run in runs.items():
                how = f"{name}, {where}"
                claims.check_table(how, agent, run)
                claims.check_gradients(how, agent, run)
                curves[how] = claims.check_solved(how, agent, goal, run)
            claims.check_killed(name, runs["spread"], KILL_AT)
            if name == "impala":
                claims.check_chances(name, agent, runs["spread"])
    pictures.curves(f"Returns in {environment.name}", "versions", "mean return", curves)
    done()


if __name__ == "__main__":
    app.run(main)
