"""Run it: python -m examples.systems.big_dl --lp_launch_type=local_mp."""

from absl import app

from examples._shared import digits
from examples._shared.checks import QUICK, done
from examples._shared.networks import Dense
from examples._shared.problem import Problem
from examples.systems.big_dl import claims
from examples.systems.big_dl.algorithm import FORWARD_BACKWARD, SYNCHRONIZATION, Task
from examples.systems.big_dl.oracle import train_alone
from examples.systems.big_dl.program import Result, fit

MOMENTUM = 0.9
GROUP = 8
DEADLY = [Task(FORWARD_BACKWARD, 11, executor=1), Task(SYNCHRONIZATION, 18, executor=2)]


def main(_: list[str]) -> None:
    """Train with 1, 2 and 4 executors, in groups of iterations, and while two are killed."""
    training, held_out = digits.load()
    problem = Problem(
        training,
        Dense((64, 512, 64, 10)),  # so many that a message is nearly all gradient
        steps=24 if QUICK.value else 240,
        slice_size=24,
        learning_rate=0.1,
    )
    results: dict[int, Result] = {}
    for n in (1, 2, 4):
        results[n] = fit(problem, n, momentum=MOMENTUM)
        n_bytes = problem.steps * problem.first_parameters.nbytes
        claims.check_bytes(results[n].edges, n, n_bytes)
    claims.check_parameters(results, train_alone(problem, MOMENTUM))

    by_group: dict[int | None, Result] = {None: results[4]}
    for group in (GROUP,) if QUICK.value else (1, 2, 4, GROUP):
        by_group[group] = fit(problem, 4, group, MOMENTUM)
    claims.check_dispatches(by_group, problem.steps)
    disturbed = fit(problem, 4, GROUP, MOMENTUM, DEADLY)
    claims.check_kills(disturbed.trained, by_group[GROUP].trained, DEADLY, GROUP)
    claims.check_int8(problem.widths, results[4].trained.parameters, held_out)
    done()


if __name__ == "__main__":
    app.run(main)
