"""Run it: python -m examples.systems.horovod --lp_launch_type=local_mp."""

from absl import app, flags

import launchpad as lp
from examples._shared import digits, pictures
from examples._shared.checks import QUICK, check_same_bits, done, phase
from examples._shared.networks import Dense
from examples._shared.problem import Problem
from examples.systems.horovod import claims
from examples.systems.horovod.program import make_program
from examples.systems.horovod.rank import Options, Trained

RANKS = flags.DEFINE_multi_integer("ranks", [2, 3, 4], "How many ranks train, in each launch.", 2)
STEPS = flags.DEFINE_integer("steps", None, "How many steps; by default 60, or 6 with --quick.", 2)
BACKEND = flags.DEFINE_enum("backend", "courier", ["courier", "gloo"], "What reduces arrays.")
FP16 = flags.DEFINE_bool("fp16", False, "Whether gradients travel as float16.")
TORCH = flags.DEFINE_bool("torch", False, "Train a model of torch in a user's loop, too.")


def main(_: list[str]) -> None:
    """Train with 2, 3 and 4 ranks, once more while one is killed, and check what the papers claim."""
    options = Options(wire="float16" if FP16.value else "float64")
    runs = [train(n_ranks, options) for n_ranks in RANKS.value]
    problem, trained = runs[-1]
    claims.check_fusion(trained[0].traces)
    ranks = f"{problem.workers} ranks"
    phase(f"{ranks}; rank 1 is killed half-way")
    program = make_program(problem, options, problem.steps // 2, backend=BACKEND.value)
    claims.check_kill(lp.run(program)["rank"], trained)
    if TORCH.value:
        from examples.systems.horovod.torch_user import check_loops

        check_loops(problem, trained[0].parameters)
    pictures.curves("Loss of rank 0", "step", "loss", {ranks: trained[0].losses})
    done()


def train(n_ranks: int, options: Options) -> tuple[Problem, list[Trained]]:
    """Train with some ranks, and check their parameters and their traffic."""
    phase(f"{n_ranks} ranks")
    # Arrays up to 1 MiB would not be cut into parts: so there are more of the short numbers.
    hidden, tolerance = (8192, 1e-3) if FP16.value else (2048, 1e-12)
    training, held_out = digits.load()
    problem = Problem(
        training,
        Dense((64, hidden, 64, 64, 10)),
        workers=n_ranks,
        steps=STEPS.value or (6 if QUICK.value else 60),
        slice_size=24 // n_ranks,
        learning_rate=100 / hidden,  # in a wide layer large steps lead away
    )
    running = lp.launch(make_program(problem, options, backend=BACKEND.value))
    trained = running.results("rank")
    running.wait()
    losses = trained[0].losses
    accuracy = problem.accuracy(trained[0].parameters, held_out)
    print(f"loss {losses[0]:.3f}, then {losses[-1]:.3f}; accuracy {accuracy:.3f}")
    # Though each began with other weights, and saw other rows.
    claim = f"all {n_ranks} ranks end with the same bits"
    check_same_bits(claim, (of_rank.parameters for of_rank in trained))
    claim = f"{n_ranks} ranks learn what one process learns from whole batches"
    alone = problem.train_alone(options.momentum)
    claims.check_near(trained[0].parameters, alone, tolerance, claim)
    if BACKEND.value == "courier":  # what goes by gloo is not counted
        claims.check_bytes(running.edges(), problem, options)
    return problem, trained


if __name__ == "__main__":
    app.run(main)
