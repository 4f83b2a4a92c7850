"""Run it: python -m examples.systems.gpipe --lp_launch_type=local_mp."""

from itertools import product

from absl import app, flags

import launchpad as lp
from examples._shared import digits
from examples._shared.checks import QUICK, done
from examples.systems.gpipe import claims, oracle, torch_pipeline
from examples.systems.gpipe.program import make_program
from examples.systems.gpipe.training import Run, Training

TORCH = flags.DEFINE_bool("torch", False, "Train with torch's pipeline, too.")

RUNS = [Run(*run) for run in product((1, 4, 8), (False, True))]
DISTURBED = RUNS[-1]._replace(is_disturbed=True)


def main(_: list[str]) -> None:
    """Train with 1, 2 and 4 stages, kill one of the four, and check what the paper claims."""
    training = Training(digits.load()[0], steps=3 if QUICK.value else 30)
    alone = oracle.train_alone(training)
    claims.check_cut(training, 4)
    for n_stages, runs in ((1, RUNS), (2, RUNS), (4, [*RUNS, DISTURBED])):
        stages = lp.run(make_program(training, runs, n_stages))["stage"]
        trained = {run: [last[i] for last, _ in stages] for i, run in enumerate(runs)}
        claims.check_equal(trained, alone, n_stages)
        claims.check_bubble(trained, n_stages)
        claims.check_kept(trained, training, n_stages)
        if DISTURBED in runs:
            claims.check_killed(trained, RUNS[-1], [attempt for _, attempt in stages])
    if TORCH.value:
        program = torch_pipeline.make_program(training, 8, 4)
        claims.check_torch(lp.run(program, preload=torch_pipeline.PRELOAD)["stage"], alone)
    done()


if __name__ == "__main__":
    app.run(main)
