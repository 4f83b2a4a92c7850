"""Run it: python -m examples.systems.tf_replicator --lp_launch_type=local_mp --quick."""

import numpy as np
from absl import app, flags

import launchpad as lp
from examples._shared import digits, pictures
from examples._shared.checks import QUICK, check, done, phase
from examples._shared.networks import Dense
from examples._shared.problem import Problem
from examples.systems.tf_replicator import claims
from examples.systems.tf_replicator.algorithm import Replicator
from examples.systems.tf_replicator.models import Trainer, accuracy
from examples.systems.tf_replicator.program import replicate, replicate_in_graph

REPLICAS = flags.DEFINE_integer("replicas", 4, "How many replicas the largest deployment has.", 2)
STEPS = flags.DEFINE_integer("steps", None, "How many steps; 60 or 300.", 20)
JAX = flags.DEFINE_bool("jax", False, "Replicate in the graph of one process, too.")


def main(_: list[str]) -> None:
    """Train with all deployments at once, and with one replica here; check what the paper claims."""
    training, held_out = digits.load()
    n = REPLICAS.value
    steps = STEPS.value or (60 if QUICK.value else 300)
    problem = Problem(
        training, Dense((64, 32, 10)), n, steps, slice_size=-(-64 // n), learning_rate=0.2
    )
    phase(f"groups of 2, {n}, 2 and 2 replicas; a replica of the third is killed")
    program = lp.Program("tf_replicator")
    replicate(program, "two", 2, Trainer, problem, steps)
    replicate(program, "many", n, Trainer, problem, steps)
    replicate(program, "killed", 2, Trainer, problem, steps, kill_at=steps // 2 + 7)
    replicate(program, "async", 2, Trainer, problem, steps, mode="async")
    if JAX.value:
        replicate_in_graph(program, "in_graph", n, problem)
    running = lp.launch(program, preload=["numpy"])
    replicator = Replicator()
    alone = replicator.train(Trainer(replicator, problem), steps)
    running.wait()
    two = running.results("two")[0]
    many = running.results("many")[0]
    each_by_itself = running.results("async")

    phase("what they have learned")
    claims.check_losses(alone, {2: two, n: many})
    claims.check_serial(many, problem, f"{n} replicas")
    claims.check_killed(running.results("killed"), two)
    claims.check_applied(each_by_itself, problem)
    in_step = accuracy(problem, two.variables, held_out)
    not_in_step = accuracy(problem, each_by_itself[0].variables, held_out)
    claim = (
        "with mode='async' replicas recognise nearly as many held-out digits as with mode='sync'"
    )
    check(not_in_step >= in_step - 0.02, claim, f"{not_in_step:.3f} instead of {in_step:.3f}")
    if JAX.value:
        claims.check_serial(running.results("in_graph")[0], problem, f"{n} devices of one process")
    outputs = {"alone": alone, f"{n} replicas": many, "2, async": each_by_itself[0]}
    losses = {name: np.mean(each.outputs, axis=1).tolist() for name, each in outputs.items()}
    print(
        f"      loss {losses['alone'][0]:.3f} at the first step, {losses['alone'][-1]:.3f} at the last"
    )
    pictures.curves("Mean loss of the replicas", "step", "loss", losses)
    done()


if __name__ == "__main__":
    app.run(main)
