"""Run it: python -m examples.systems.horovod --lp_launch_type=local_mp."""

from absl import app, flags

import launchpad as lp
from examples._shared import digits, pictures
from examples._shared.checks import QUICK, done, phase
from examples._shared.networks import Dense
from examples._shared.problem import Problem
from examples.systems.horovod import claims
from examples.systems.horovod.program import make_program
from examples.systems.horovod.rank import Options

RANKS = flags.DEFINE_multi_integer("ranks", [2, 3, 4], "How many ranks train, in each launch.", 2)
STEPS = flags.DEFINE_integer("steps", None, "How many steps; by default 60, or 6 with --quick.", 2)
BACKEND = flags.DEFINE_enum("backend", "courier", ["courier", "gloo"], "What reduces arrays.")
FP16 = flags.DEFINE_bool("fp16", False, "Whether gradients travel as float16.")
TORCH = flags.DEFINE_bool("torch", False, "Train a model of torch in a user's loop, too.")


def main(_: list[str]) -> None:
    """Train with 2, 3 and 4 ranks, once more while one is killed, and check what the papers claim."""
    # Arrays up to 1 MiB would not be cut into parts: so there are more of the short numbers.
    hidden, wire, tolerance = (8192, "float16", 1e-3) if FP16.value else (2048, "float64", 1e-12)
    training, held_out = digits.load()
    options = Options(wire=wire)
    by_edges = BACKEND.value == "courier"  # what goes by gloo is not counted
    for n_ranks in RANKS.value:
        phase(f"{n_ranks} ranks")
        problem = Problem(
            training,
            Dense((64, hidden, 64, 64, 10)),
            workers=n_ranks,
            steps=STEPS.value or (6 if QUICK.value else 60),
            slice_size=24 // n_ranks,
            learning_rate=100 / hidden,  # in a wide layer large steps lead away
        )
        program = make_program(problem, options, backend=BACKEND.value)
        running = lp.launch(program)
        trained = running.results("rank")
        running.wait()
        parameters = trained[0].parameters
        losses = trained[0].losses
        accuracy = problem.accuracy(parameters, held_out)
        print(f"loss {losses[0]:.3f}, then {losses[-1]:.3f}; accuracy {accuracy:.3f}")
        claims.check_equal_bits(trained)
        claim = f"{n_ranks} ranks learn what one process learns from whole batches"
        alone = claims.train_alone(problem, options.momentum)
        claims.check_near(parameters, alone, tolerance, claim)
        if by_edges:
            claims.check_bytes(running.edges(), problem, options)
    claims.check_fusion(trained[0].traces)
    phase(f"{n_ranks} ranks; rank 1 is killed half-way")
    program = make_program(problem, options, problem.steps // 2, backend=BACKEND.value)
    claims.check_kill(lp.run(program)["rank"], trained)
    if TORCH.value:
        from examples.systems.horovod.torch_user import check_loops

        check_loops(problem, parameters)
    pictures.curves("horovod: loss of rank 0", "step", "loss", {f"{n_ranks} ranks": losses})
    done()


if __name__ == "__main__":
    app.run(main)
