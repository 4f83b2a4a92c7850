"""The problem by which these systems are compared."""

import launchpad as lp
from examples._shared.problem import Learned, Problem
from examples.systems.big_dl.algorithm import FORWARD_BACKWARD, SYNCHRONIZATION, Task
from examples.systems.big_dl.program import make_program


def train(problem: Problem, is_disturbed: bool) -> Learned:
    """Train with an executor for each slice. Raise RuntimeError if two should have died, and did not."""
    half = problem.steps // 2
    deadly = [Task(FORWARD_BACKWARD, half, executor=0), Task(SYNCHRONIZATION, half, executor=1)]
    program = make_program(problem, group=8, deadly=deadly if is_disturbed else ())
    running = lp.launch(program, preload=["numpy"])
    (trained,) = running.results("driver")
    running.wait()
    if is_disturbed and trained.attempts[:2] != [2, 2]:
        raise RuntimeError(f"two executors were to be killed, and all ended in {trained.attempts}")
    return Learned(trained.parameters, staleness=0, edges=running.edges())


METHODS = {"big_dl": train}
