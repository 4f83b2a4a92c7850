"""Run it: python -m examples.systems.determined --lp_launch_type=local_mp."""

import pickle
from dataclasses import replace
from functools import partial
from typing import Any

from absl import app, flags

import launchpad as lp
from examples._shared import digits, networks, pictures
from examples._shared.checks import QUICK, check, done, phase
from examples._shared.data import Data
from examples.systems.determined import claims
from examples.systems.determined.algorithm import Asha, Random, choice, log
from examples.systems.determined.program import make_program
from examples.systems.determined.slot import Slot

TRIALS = flags.DEFINE_integer("trials", 30, "How many trials ASHA begins.")
STEPS = flags.DEFINE_integer(
    "steps", 0, "How far the best trials get, a multiple of 9; 0: 54 or 18."
)
# By slot and attempt: the slot dies at this step or later of a trial with at least that many slots.
KILLS = {("agent-1.0", 1): (2, 1), ("agent-1.0", 2): (2, 5), ("agent-2.0", 1): (2, 5)}


def train(training: Data, held_out: Data, context: Slot, hparams: dict[str, Any]) -> None:
    """Train a network on the digits."""
    network = networks.Dense((64, hparams["width"], 10))
    parameters = context.load(network.first_parameters(context.seed))
    for step in context.steps():
        at_step, n_slots = KILLS.get((lp.current().name, lp.current().attempt), (1000, 1))
        if step >= at_step and context.size >= n_slots:
            lp.testing.crash()
        for i in range(4 * step, 4 * step + 4):
            batch = training.batch(i, 120, slice(context.rank, None, context.size))
            gradients = context.gather(networks.gradient(network, parameters, batch))
            parameters = parameters - hparams["rate"] * sum(gradients) / context.size
        loss, _ = networks.loss_and_gradient(network, parameters, held_out)
        context.report(step, loss, parameters)


def main(_: list[str]) -> None:
    """Search twice: undisturbed and to the end, and while agents and the master are killed."""
    steps = STEPS.value or (18 if QUICK.value else 54)
    data = digits.load()
    space = {"rate": log(1e-3, 3), "width": choice(8, 16, 32)}
    trials: dict[str, Any] = {"train": partial(train, *data), "space": space}
    asha = Asha(name="asha", trials=TRIALS.value, steps=steps, eta=3, max_rungs=3, **trials)
    adaptive = replace(asha, name="adaptive", trials=16, brackets=2)
    gang = Random(name="gang", trials=4, steps=6, slots=5, priority=10, after=steps // 3, **trials)

    phase("all trials train to the end, undisturbed")
    full = [replace(asha, max_rungs=1), replace(adaptive, max_rungs=1, brackets=1)]
    (events,) = lp.run(make_program([*full, replace(gang, priority=50)], agents=[5]))["user"]
    alone = {each.trial.name: each.trial.metrics for each in events}

    phase("the same trials in searches; agents and the master are killed, trials are preempted")
    running = lp.launch(make_program([asha, adaptive, gang], [2, 2, 1], {1: 30, 2: 90, 3: 150}))
    (events,) = running.results("user")
    running.wait()
    attempts = {each.worker: each.attempt for each in running.status() if each.attempt > 1}
    is_planned = attempts == {"master-0": 4, "agent-1.0": 3, "agent-2.0": 2}
    check(is_planned, "slots and the master die as planned, and start again", f"{attempts}")
    curves = {each.trial.name: each.trial.metrics for each in events}
    claims.check_curves(curves, alone)
    claims.check_runs(events)
    rungs = steps // 9, steps // 3, steps
    claims.check_asha("asha", events, [rungs] * asha.trials)
    # The brackets with 3 and with 2 rungs share 16 trials as 9/3 to 3/2.
    claims.check_asha("adaptive", events, [rungs] * 11 + [rungs[1:]] * 5)
    best = min(events, key=lambda event: event.trial.metrics[-1]).trial
    network = networks.Dense((64, best.hparams["width"], 10))
    accuracy = networks.accuracy(network, pickle.loads(best.checkpoint), data[1])
    print(f"best: {best.hparams}, loss {best.metrics[-1]:.3f}, accuracy {accuracy:.3f}")
    promising = {name: curve for name, curve in curves.items() if len(curve) > steps // 3}
    pictures.curves("Losses of trials", "steps", "loss", promising)
    done()


if __name__ == "__main__":
    app.run(main)
