"""Run it: python -m examples.es --evaluators=8 --lp_launch_type=local_mp."""

from absl import app, flags

import launchpad as lp
from examples._shared.checks import done
from examples.es.program import (
    ITERATIONS,
    check_equals_training_alone,
    check_return,
    make_program,
)

EVALUATORS = flags.DEFINE_integer("evaluators", 4, "How many evaluators play episodes.", 1)
ITERATION_COUNT = flags.DEFINE_integer("iterations", ITERATIONS, "How often to update.", 1)


def main(_: list[str]) -> None:
    """Build the program that the flags describe and launch it."""
    (parameters,) = lp.run(make_program(EVALUATORS.value, ITERATION_COUNT.value))["trainer"]
    check_equals_training_alone(parameters, ITERATION_COUNT.value)
    check_return(parameters)
    done()


if __name__ == "__main__":
    app.run(main)
