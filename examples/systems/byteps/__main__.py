"""Run it: python -m examples.systems.byteps --lp_launch_type=local_mp."""

from absl import app, flags

import launchpad as lp
from examples._shared import digits, pictures
from examples._shared.checks import QUICK, check_same_bits, done, phase
from examples._shared.networks import Dense
from examples._shared.problem import Problem
from examples.systems.byteps import claims
from examples.systems.byteps.program import make_program
from examples.systems.byteps.worker import Options

WORKERS = flags.DEFINE_integer("workers", 4, "How many workers train.", 2)
STEPS = flags.DEFINE_integer("steps", None, "How many steps; by default 20, or 3 with --quick.", 2)
MOMENTUM = 0.9


def main(_: list[str]) -> None:
    """Train with 0, n/2 and n spare machines, once more while one is killed; check what the papers claim."""
    n = WORKERS.value
    training, held_out = digits.load()
    problem = Problem(
        training,
        Dense((64, 2048, 1024, 10)),  # the second layer has 17 MB
        workers=n,
        steps=STEPS.value or (3 if QUICK.value else 20),
        slice_size=6,
        learning_rate=0.01,
    )
    alone = claims.train_alone(problem, MOMENTUM)
    settings = {
        0: ("in order", Options(by_priority=False, momentum=MOMENTUM)),
        n // 2: ("by priority", Options(momentum=MOMENTUM)),
        n: ("by priority, without a limit", Options(credit=float("inf"), momentum=MOMENTUM)),
    }
    trained = []
    for k, (order, options) in settings.items():
        phase(f"{n} workers, {k} spare machines; gradients leave {order}")
        running = lp.launch(make_program(problem, k, options), preload=["numpy"])
        running.wait()
        trained.append([of_worker for _, of_worker in running.results("worker")])
        losses = trained[-1][0].losses
        accuracy = problem.accuracy(trained[-1][0].parameters, held_out)
        print(f"loss {losses[0]:.3f}, then {losses[-1]:.3f}; accuracy {accuracy:.3f}")
        claim = f"(n, k) = ({n}, {k}): workers learn the same bits as one process"
        check_same_bits(claim, [alone, *(of_worker.parameters for of_worker in trained[-1])])
        n_bytes = problem.steps * problem.first_parameters.nbytes
        claims.check_bytes(running.edges(), n, k, n_bytes)
    in_order, by_priority, at_once = trained
    claims.check_credit([*in_order, *by_priority])
    claims.check_overtaking(by_priority)
    claims.check_iteration_time(by_priority, in_order, at_once)
    phase("the server of the first spare machine is killed half-way")
    options = Options(momentum=MOMENTUM)
    killing = make_program(problem, n // 2, options, kill_at=problem.steps // 2)
    disturbed = [of_worker for _, of_worker in lp.run(killing, preload=["numpy"])["worker"]]
    claims.check_kill(disturbed, by_priority)
    rows = {}
    for name, workers in (("in order", in_order), ("by priority", by_priority)):
        for row, bars in zip(("worker", "link"), claims.replay(workers[0].trace), strict=True):
            rows[f"{row}, {name}"] = [bar for bar in bars if bar.end <= 20]
    pictures.timeline("The first steps of worker 0", "logical time", rows)
    done()


if __name__ == "__main__":
    app.run(main)
