"""Run it: python -m examples.es --evaluators=8 --lp_launch_type=local_mp."""

from absl import app, flags

import launchpad as lp
from examples._shared import pictures
from examples._shared.checks import done, phase
from examples.es.cartpole import CartPole
from examples.es.claims import check_equals_training_alone, check_kill, check_return, train_alone
from examples.es.evolution import Strategy
from examples.es.program import make_program

EVALUATORS = flags.DEFINE_integer("evaluators", 4, "How many evaluators play episodes.", 1)
ITERATIONS = flags.DEFINE_integer("iterations", 20, "How often to update.", 1)
PAIRS = flags.DEFINE_integer("pairs", 16, "How many perturbations to try in each iteration.", 1)


def main(_: list[str]) -> None:
    """Train a policy, check it, and train it once more while an evaluator is killed."""
    phase(f"{EVALUATORS.value} evaluators")
    strategy = Strategy(ITERATIONS.value, PAIRS.value)
    (trained,) = lp.run(make_program(CartPole, strategy, EVALUATORS.value))["trainer"]
    check_equals_training_alone(trained.parameters, train_alone(CartPole(), strategy))
    check_return(trained.parameters, CartPole())
    phase("evaluator 0 is killed in the first iteration")
    program = make_program(CartPole, strategy, EVALUATORS.value, kill_at=0)
    (disturbed,) = lp.run(program)["trainer"]
    check_kill(disturbed, trained)
    returns = {"trainer": trained.returns}
    pictures.curves("Mean return of 32 episodes", "iteration", "return", returns)
    done()


if __name__ == "__main__":
    app.run(main)
