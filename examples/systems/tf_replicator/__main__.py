"""Run it: python -m examples.systems.tf_replicator --lp_launch_type=local_mp --quick."""

from absl import app, flags

import launchpad as lp
from examples._shared import digits
from examples._shared.checks import QUICK, done
from examples.systems.tf_replicator import claims
from examples.systems.tf_replicator.algorithm import Replicator, train
from examples.systems.tf_replicator.models import Classifier, Gan, Normalization
from examples.systems.tf_replicator.program import make_program

TORCH = flags.DEFINE_bool("torch", False, "Compare batch norm with torch's, too.")


def main(_: list[str]) -> None:
    """Train with all deployments at once, and with one replica here; check what the paper claims."""
    examples, held_out = digits.load()
    steps = 60 if QUICK.value else 300
    program = make_program(examples, steps, kill_at=steps // 2 + 7)
    running = lp.launch(program, preload=["numpy"])
    alone = train(Replicator(), [Classifier, Gan], examples, steps)
    running.wait()
    two = running.results("two")[0].trained
    four = running.results("four")[0].trained

    for model in (Classifier, Gan):
        claims.check_names_no_communication(model.step_fn)
    by_replicas = {2: two[Classifier], 4: four[Classifier]}
    claims.check_losses("classifier", alone[Classifier], by_replicas)
    claims.check_serial(four[Classifier], examples)
    claims.check_batch_norm(four[Normalization])
    if TORCH.value:
        claims.check_batch_norm(four[Normalization], uses_torch=True)
    claims.check_losses("GAN", alone[Gan], {2: two[Gan]})
    claims.check_gan_learns(two[Gan], held_out)
    claims.check_killed(running.results("killed"), two[Gan])
    pushes = running.edges().total(caller="async", method="push").calls
    models = Classifier(Replicator(), examples), Gan(Replicator(), examples)
    first = [variable for model in models for variable in model.variables]
    claims.check_applied(running.results("async"), pushes, first)
    claims.check_accuracy(two[Classifier], running.results("async"), held_out)
    done()


if __name__ == "__main__":
    app.run(main)
