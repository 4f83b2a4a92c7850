"""Run it: python -m examples.systems.big_dl --lp_launch_type=local_mp."""

from collections.abc import Sequence

from absl import app, flags

import launchpad as lp
from examples._shared import digits, pictures
from examples._shared.checks import QUICK, done, phase
from examples._shared.networks import Dense
from examples._shared.problem import Problem
from examples.systems.big_dl import claims
from examples.systems.big_dl.algorithm import FORWARD_BACKWARD, SYNCHRONIZATION, Task
from examples.systems.big_dl.driver import Trained
from examples.systems.big_dl.program import make_program

EXECUTORS = flags.DEFINE_integer("executors", 4, "The largest number of executors, even.", 4)
STEPS = flags.DEFINE_integer("steps", 24, "How many iterations.", 24)
MOMENTUM = 0.9
GROUP = 8


def main(_: list[str]) -> None:
    """Train with few and many executors, in groups of iterations, and while two are killed."""
    n = EXECUTORS.value
    training, held_out = digits.load()
    network = Dense((64, 512, 64, 10))  # large, so that a message is nearly all gradient
    problem = Problem(
        training, network, workers=n, steps=STEPS.value, slice_size=96 // n, learning_rate=0.1
    )
    phase(f"1, 2 and {n} executors; the driver dispatches one job after the other")
    results = {executors: fit(problem, executors) for executors in (1, 2, n)}
    for executors, each in results.items():
        claims.check_bytes(each[1], executors, problem.steps * problem.first_parameters.nbytes)
    trained = {executors: each[0] for executors, each in results.items()}
    calls: dict[int | None, float] = {None: dispatched(results[n][1], problem)}
    alone = list(problem.steps_alone(MOMENTUM))
    claims.check_parameters(trained, alone[-1])
    losses = [problem.loss_and_gradient(x, held_out)[0] for x in alone]
    accuracy = problem.accuracy(trained[n].parameters, held_out)
    print(f"      held-out loss {losses[0]:.3f}, then {losses[-1]:.3f}; accuracy {accuracy:.3f}")
    phase(f"{n} executors; the driver dispatches groups of iterations")
    in_groups = []
    for group in (GROUP,) if QUICK.value else (1, 2, 4, GROUP):
        result, edges = fit(problem, n, group)
        calls[group] = dispatched(edges, problem)
        in_groups.append(result)
    claims.check_dispatches(calls, n)
    claims.check_same_bits("groups of iterations learn the same bits", [trained[n], *in_groups])
    phase(f"{n} executors, groups of {GROUP} iterations; two executors are killed")
    deadly = [
        Task(FORWARD_BACKWARD, problem.steps // 2 - 1, executor=1),
        Task(SYNCHRONIZATION, 3 * problem.steps // 4, executor=2),
    ]
    disturbed = fit(problem, n, GROUP, deadly)[0]
    claims.check_kills(disturbed, in_groups[-1], deadly, GROUP)
    pictures.curves("Loss of held-out rows", "iteration", "held-out loss", {"big_dl": losses})
    made = {f"executor-{i}": float(n_made) for i, n_made in enumerate(disturbed.made)}
    pictures.bars("Tasks run in the last attempts", "tasks", made)
    done()


def fit(
    problem: Problem, executors: int, group: int | None = None, deadly: Sequence[Task] = ()
) -> tuple[Trained, lp.edges.Edges]:
    """Train with a number of executors. Return the result, and the traffic over the edges."""
    program = make_program(problem, group, MOMENTUM, executors, deadly)
    running = lp.launch(program, preload=["numpy"])
    (trained,) = running.results("driver")
    running.wait()
    return trained, running.edges()


def dispatched(edges: lp.edges.Edges, problem: Problem) -> float:
    """Return the driver's calls per iteration."""
    return edges.total(caller="driver", method="execute").calls / problem.steps


if __name__ == "__main__":
    app.run(main)
