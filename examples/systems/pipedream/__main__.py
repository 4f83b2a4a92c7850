"""Run it: python -m examples.systems.pipedream --lp_launch_type=local_mp."""

import numpy as np
import threadpoolctl
from absl import app

import launchpad as lp
from examples._shared import checks, digits
from examples.systems.pipedream import claims
from examples.systems.pipedream.algorithm import NAIVE, STASHING, VERTICAL_SYNC, Part, Plan
from examples.systems.pipedream.program import add_pipeline, make_profiling
from examples.systems.pipedream.stage import BATCH

HALVES = Part(3, 1), Part(2, 1)
OTHER_PLANS: dict[str, tuple[Plan, str]] = {
    "vertical-sync": (HALVES, VERTICAL_SYNC),
    "naive": (HALVES, NAIVE),
    "plan-2-1": ((Part(3, 2), Part(2, 1)), STASHING),
    "plan-1-2-1": ((Part(2, 1), Part(2, 2), Part(1, 1)), STASHING),
}


def main(_: list[str]) -> None:
    """Profile, plan, train in the pipelines of that plan and of others, and check what comes out."""
    threadpoolctl.threadpool_limits(1)  # matrices as small as these only get slower by more
    claims.check_planner(np.random.default_rng(0))
    train, held_out = digits.load()
    batches = [train.batch(step, BATCH) for step in range(48 if checks.QUICK.value else 240)]
    plan = claims.check_plan(lp.run(make_profiling(batches[0]))["profiler"][0])
    pipelines = {"stashing": (plan, STASHING), "killed": (plan, STASHING)} | OTHER_PLANS

    program = lp.Program("pipedream")
    for label, (parts, rule) in pipelines.items():
        add_pipeline(program, label, parts, train, len(batches), rule, is_killed=label == "killed")
    running = lp.launch(program, preload=["numpy"])
    running.wait()

    trained = {label: running.results(label) for label in pipelines}
    for label, (parts, rule) in pipelines.items():
        claims.check_weights(label, trained[label], parts, rule, batches)
    undisturbed = trained["stashing"]
    claims.check_kill(trained["killed"], undisturbed)
    claims.check_versions(undisturbed)
    claims.check_utilisation([events for *_, events in undisturbed])
    n_bytes = running.edges().total(caller="stashing", method="put").bytes_sent
    claims.check_traffic(n_bytes / len(batches))
    claims.check_accuracy(undisturbed, batches, held_out)
    checks.done()


if __name__ == "__main__":
    app.run(main)
