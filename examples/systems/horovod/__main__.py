"""Run it: python -m examples.systems.horovod --lp_launch_type=local_mp."""

from collections.abc import Callable
from typing import Any

from absl import app, flags

import launchpad as lp
from examples._shared import digits
from examples._shared.checks import QUICK, done
from examples.systems.horovod import claims
from examples.systems.horovod.oracle import train_alone, train_by_torch
from examples.systems.horovod.program import Training, make_program, train

BACKEND = flags.DEFINE_enum("backend", "courier", ["courier", "gloo"], "What reduces arrays.")
FP16 = flags.DEFINE_bool("fp16", False, "Whether gradients travel as float16.")
TORCH = flags.DEFINE_bool("torch", False, "Train with torch's DistributedDataParallel, too.")


def main(_: list[str]) -> None:
    """Train with 2, 3 and 4 ranks, once more while one is killed, and check what the papers claim."""
    # Arrays up to 1 MiB would not be cut into parts: so there are more of the short numbers.
    hidden, wire, tolerance = (8192, "float16", 1e-3) if FP16.value else (2048, "float64", 1e-12)
    training = Training(
        digits.load()[0],
        widths=(64, hidden, 64, 64, 10),
        steps=6 if QUICK.value else 60,
        learning_rate=100 / hidden,  # in a wide layer large steps lead away
        wire=wire,
    )
    by_edges = BACKEND.value == "courier"  # what goes by gloo is not counted
    alone = train_alone(training)
    trained = []
    for n_ranks in (2, 3, 4) if by_edges else (4,):
        running = launch(n_ranks, train, training)
        trained = running.results("rank")
        running.wait()
        claims.check_equal_bits(trained)
        claim = f"{n_ranks} ranks learn what one process learns from whole batches"
        claims.check_near(trained[0].parameters, alone, tolerance, claim)
        if by_edges:
            claims.check_bytes(running.edges(), n_ranks, training)
    claims.check_fusion(trained[0], training)
    disturbed = launch(4, train, training, training.steps // 2).results("rank")
    claims.check_kill(disturbed, trained)
    if TORCH.value:
        theirs = launch(4, train_by_torch, training).results("rank")
        claim = "4 ranks learn what torch's DistributedDataParallel learns"
        claims.check_near(trained[0].parameters, theirs[0], 1e-6, claim)
    done()


def launch(n_ranks: int, function: Callable[..., Any], *args: Any) -> lp.Running:
    """Launch the ranks. Their processes import torch beforehand if they need it."""
    needs_torch = function is train_by_torch or BACKEND.value == "gloo"
    preload = ["torch", "torch._dynamo"] if needs_torch else None
    return lp.launch(make_program(n_ranks, function, *args, backend=BACKEND.value), preload=preload)


if __name__ == "__main__":
    app.run(main)
