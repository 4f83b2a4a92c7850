"""Run it: python -m examples.systems.dist_keras --lp_launch_type=local_mp."""

import tempfile
from dataclasses import replace
from pathlib import Path

from absl import app

import launchpad as lp
from examples._shared import digits
from examples._shared.checks import QUICK, done
from examples._shared.data import Data
from examples._shared.problem import Problem
from examples.systems.dist_keras import claims
from examples.systems.dist_keras.oracle import Replayed, replay
from examples.systems.dist_keras.program import Trained, make_program
from examples.systems.dist_keras.training import Training, rules

SEEDS = 5
WANTED = ("ADAG", "DynSGD", "AEASGD")


def main(_: list[str]) -> None:
    """Train by all rules while their servers are killed; check it against one process; replay one run."""
    data, held_out = digits.load()
    problem = Problem(data, steps=150 if QUICK.value else 400)
    training = Training(problem, rules(problem, SEEDS))
    trained = launch(training, kill="AEASGD")
    claims.check_counted(training, trained)
    claims.check_staleness(trained)
    for name, workers in trained.items():
        alone = replay(training, training.rules[name], workers[0].centre.record)
        claims.check_replay(name, workers, alone)
        if name in ("AEASGD", "EAMSGD"):
            claims.check_elastic(name, alone)
        report_accuracy(training, name, alone, held_out)
    short = replace(problem, steps=50)
    check_order(Training(short, {"DynSGD": rules(short)["DynSGD"]}))
    done()


def launch(
    training: Training,
    kill: str = "",
    order: lp.edges.Record | lp.edges.Replay | None = None,
    lags_reversed: bool = False,
) -> dict[str, list[Trained]]:
    """Return the results of all workers, by rule."""
    program = make_program(training, kill, order, lags_reversed)
    workers = lp.run(program, preload=["numpy"])["worker"]
    return {name: [worker[name] for worker in workers] for name in training.rules}


def report_accuracy(training: Training, name: str, alone: Replayed, held_out: Data) -> None:
    """Check the accuracy of the rules that should be good, and print that of the others."""
    reached = claims.accuracies(training, alone.centre.models, held_out)
    if name in WANTED:
        claims.check_accuracy(name, reached)
    else:
        print(f"      {name} recognises {claims.show(reached)}")
    if training.rules[name].seeds > 1:
        lowest = claims.lowest(training, alone.versions, held_out)
        print(f"      {name} recognises as little as {claims.show(lowest)} in its second half")


def check_order(training: Training) -> None:
    """Record the order of the server's calls, and replay it in a run that would have another order."""
    with tempfile.TemporaryDirectory() as folder:
        (recorded, *_) = launch(training, order=lp.edges.Record(folder))["DynSGD"]
        if not any(Path(folder).iterdir()):
            print(
                "      not run again by lp.edges.Replay: servers have written to other disks than this"
            )
            return
        replay_in = lp.edges.Replay(folder)
        (replayed, *_) = launch(training, order=replay_in, lags_reversed=True)["DynSGD"]
    claims.check_order(recorded, replayed)


if __name__ == "__main__":
    app.run(main)
