"""Run it: python -m examples.gpipe --lp_launch_type=local_mp."""

from itertools import product

from absl import app, flags

import launchpad as lp
from examples._shared import digits
from examples._shared.checks import QUICK, done
from examples.gpipe import claims, oracle
from examples.gpipe.program import Run, Training, make_program

TORCH = flags.DEFINE_bool("torch", False, "Compute the gradients with torch's pipeline, too.")

RUNS = [Run(*run) for run in product((1, 4, 8), (False, True))]


def main(_: list[str]) -> None:
    """Train with 1, 2 and 4 stages, kill one of the four, and check what the paper claims."""
    training = Training(digits.load()[0], steps=3 if QUICK.value else 30)
    alone = oracle.train_alone(training)
    for n_stages in (1, 2, 4):
        runs = [*RUNS, RUNS[-1]._replace(is_disturbed=True)] if n_stages == 4 else RUNS
        stages = lp.run(make_program(training, runs, n_stages))["stage"]
        trained = {run: [last[i] for last, _ in stages] for i, run in enumerate(runs)}
        claims.check_cut(training, n_stages)
        claims.check_equal(trained, alone, n_stages)
        claims.check_bubble(trained, n_stages)
        claims.check_kept(trained, training, n_stages)
    claims.check_killed(trained, RUNS[-1], [attempt for _, attempt in stages])
    if TORCH.value:
        pass
    done()


if __name__ == "__main__":
    app.run(main)
