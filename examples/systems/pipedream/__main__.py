"""Run it: python -m examples.systems.pipedream --lp_launch_type=local_mp."""

import numpy as np
import threadpoolctl
from absl import app, flags

import launchpad as lp
from examples._shared import checks, digits, pictures
from examples._shared.checks import check
from examples._shared.networks import Dense
from examples._shared.problem import Problem
from examples.systems.pipedream import claims, oracle
from examples.systems.pipedream.algorithm import Part, Plan
from examples.systems.pipedream.program import make_profiling, make_program
from examples.systems.pipedream.stage import parameters_of

MACHINES = flags.DEFINE_integer("machines", 3, "How many machines to plan for.", 2, 5)
STEPS = flags.DEFINE_integer("steps", None, "Minibatches; by default 240, or 48 if quick.", 36)


def main(_: list[str]) -> None:
    """Profile, plan, train in the pipelines of that plan and of others, and check what comes out."""
    threadpoolctl.threadpool_limits(1)  # matrices as small as these only get slower by more
    training, held_out = digits.load()
    network = Dense((64, 64, 192, 192, 192, 10))  # two of the five layers are most of the work
    steps = STEPS.value or (48 if checks.QUICK.value else 240)
    problem = Problem(training, network, workers=1, steps=steps, slice_size=32, learning_rate=0.05)

    checks.phase("the planner, with a profile of the layers")
    claims.check_planner(np.random.default_rng(0))
    plan = claims.check_plan(lp.run(make_profiling(problem))["profiler"][0], MACHINES.value)
    plans: dict[str, Plan] = {
        "stashing": plan,
        "killed": plan,
        "plan-2-1": [Part(3, 2), Part(2, 1)],
        "plan-1-2-1": [Part(2, 1), Part(2, 2), Part(1, 1)],
    }
    checks.phase("four pipelines; a worker of the second one is killed")
    running = lp.launch(make_program(problem, plans), preload=["numpy"])
    running.wait()
    for name, own in plans.items():
        claims.check_weights(name, running.results(name), problem, own)
    n_resumed = [layers.n_resumed for layers in running.results("killed")]
    is_right = min(n_resumed) == max(n_resumed) > 0
    check(is_right, "after the kill of a worker, all go on from one minibatch", f"{n_resumed}")
    workers = running.results("stashing")
    held = [layers.most_versions for layers in workers]
    is_right = held == [oracle.versions(plan, layers.stage) for layers in workers]
    check(is_right, "stage k of K holds K − k versions of its weights", f"{held}")
    claims.check_idle(workers, steps)
    sent = running.edges().total(caller="stashing", method="put").bytes_sent / steps
    all_reduce = 2 * (1 - 1 / MACHINES.value) * problem.first_parameters.nbytes
    measured = f"{sent / 1e3:.0f} kB per minibatch, instead of {all_reduce / 1e3:.0f} kB"
    check(sent < all_reduce, "stages send less than data parallelism would", measured)
    accuracy = problem.accuracy(parameters_of(workers), held_out)
    alone = problem.accuracy(problem.train_alone(), held_out)
    claim = "nearly as many digits are recognised as if no weights were late"
    check(accuracy >= alone - 0.02, claim, f"{accuracy:.3f} instead of {alone:.3f}")
    losses = workers[-1].losses
    print(f"      loss {np.mean(losses[:10]):.3f}, in the end {np.mean(losses[-10:]):.3f}")
    traces = [layers.trace for layers in workers]
    pictures.traces("No stage waits once the pipeline is full", traces, until=24)
    pictures.curves("Loss with stale weights", "minibatch", "loss", {"loss": losses})
    checks.done()


if __name__ == "__main__":
    app.run(main)
