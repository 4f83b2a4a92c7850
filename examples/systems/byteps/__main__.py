"""Run it: python -m examples.systems.byteps --lp_launch_type=local_mp."""

import itertools

from absl import app

import launchpad as lp
from examples._shared import digits, networks
from examples._shared.checks import QUICK, done
from examples._shared.networks import Dense
from examples._shared.problem import Problem
from examples.systems.byteps import claims
from examples.systems.byteps.oracle import train_alone, train_by_all_reduce
from examples.systems.byteps.placement import cut, placement
from examples.systems.byteps.program import make_program

MOMENTUM = 0.9


def main(_: list[str]) -> None:
    """Train with 0, 2 and 4 spare machines, once more while one is killed; check what the papers claim."""
    problem = Problem(
        digits.load()[0],
        Dense((64, 2048, 1024, 10)),  # the second layer has 17 MB
        steps=3 if QUICK.value else 20,
        slice_size=6,
        learning_rate=0.01,
    )
    n = problem.workers
    first = problem.first_parameters
    alone = train_alone(problem, MOMENTUM)
    by_ranks = lp.run(all_reduce_program(problem), preload=["numpy"])["rank"]
    layers = networks.matrices(problem.widths, first)

    # The workers' queues have priorities, except for k = 0.
    trained = {}
    for k in (0, 2, 4):
        program = make_program(problem, k, by_priority=k > 0, momentum=MOMENTUM)
        running = lp.launch(program, preload=["numpy"])
        running.wait()
        trained[k] = [of_worker for _, of_worker in running.results("worker")]
        claims.check_sums(f"(n, k) = ({n}, {k})", trained[k], alone, by_ranks)
        claims.check_bytes(running.edges(), n, k, problem.steps * first.nbytes)
    everyone = list(itertools.chain(*trained.values()))
    claims.check_partitions(everyone, max(layer.nbytes for layer in layers))
    claims.check_credit(everyone)
    claims.check_overtaking(trained[2], without=trained[0])
    claims.check_iteration_time(cut([layer.size for layer in layers], placement(n, 4)))
    killing = make_program(problem, 2, momentum=MOMENTUM, kill_at=problem.steps // 2)
    disturbed = [of_worker for _, of_worker in lp.run(killing, preload=["numpy"])["worker"]]
    claims.check_kill(disturbed, trained[2])
    done()


def all_reduce_program(problem: Problem) -> lp.Program:
    """Return the graph of ranks that learn the same without servers."""
    program = lp.Program("all_reduce")
    with program.group("rank"):
        for _ in range(problem.workers):
            program.add_node(lp.CollectiveNode(train_by_all_reduce, problem, MOMENTUM))
    return program


if __name__ == "__main__":
    app.run(main)
