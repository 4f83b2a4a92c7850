"""A rank: it trains at one of the stages, and saves its part."""

import os
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

import launchpad as lp
from examples._shared.data import Array
from examples._shared.problem import Problem
from examples.systems.zero.algorithm import Sharded, padded, part

Then = Callable[[Sharded], None]


def train(group: lp.Collective, problem: Problem, n: int, stage: int, then: Then) -> Sharded:
    """Train with n micro-batches in a batch; what is returned has the parameters."""
    model = Sharded(group, problem, stage)
    then(model)
    while model.steps < problem.steps:
        batch = problem.batch(model.steps).parts(group.size)[group.rank]
        for rows in batch.parts(n):
            values = model.forward(rows.inputs)
            model.backward(values, problem.loss_function(values[-1], rows)[1] / n)
        model.update()
        then(model)
    return model


class Trained(NamedTuple):
    """The result of a rank."""

    parameters: Array
    kept: tuple[int, int, int]  # the bytes of parameters, gradients and Adam's state
    wide: int  # the most numbers at any moment that are for arithmetic only
    generation: int
    began_at: int  # the step from which this generation of ranks went on


def run(
    group: lp.Collective, problem: Problem, n: int, stage: int, every: int, victim: int | None
) -> Trained:
    """Train. If `every` is not 0, go on from the last checkpoint, and save one after each `every` steps.

    The victim is a rank that is killed once, in the step after the first checkpoint.
    """

    def then(model: Sharded) -> None:
        if not every:
            return
        if model.steps == 0:
            load(lp.current().group_dir, model)
        elif model.steps % every == 0:
            save(lp.current().group_dir, model)
        elif (group.rank, group.generation, model.steps) == (victim, 1, every + 1):
            lp.testing.crash()

    model = train(group, problem, n, stage, then)
    kept = (n_bytes(model.parameters), n_bytes(model.gradients), n_bytes(model.states))
    wide = model.wide.most
    parameters = np.concatenate([model.layer(i) for i in range(len(model.sizes))])
    return Trained(parameters, kept, wide, group.generation, model.began_at)


def n_bytes(arrays: Iterable[Any]) -> int:
    """Return how many bytes arrays keep in memory. A view keeps the whole array behind it."""
    return sum((array if array.base is None else array.base).nbytes for array in arrays)


def save(folder: Path, model: Sharded) -> None:
    """Save Adam's state, with the master copies of the part of each layer that this rank updates."""
    place = folder / f"step-{model.steps:06}-of-{model.group.size}"
    place.mkdir(exist_ok=True)
    np.savez(place / f"new-{model.group.rank}.npz", *model.states)
    os.replace(place / f"new-{model.group.rank}.npz", place / f"rank-{model.group.rank:03}.npz")


def load(folder: Path, model: Sharded) -> None:
    """Go on from the newest step that all ranks have saved. Another number of ranks may have saved it."""
    for place in sorted(folder.glob("step-*"), reverse=True):
        _, step, _, n = place.name.split("-")
        ranks = [np.load(file) for file in sorted(place.glob("rank-*.npz"))]
        if len(ranks) == int(n):
            for i, size in enumerate(model.sizes):
                whole = np.hstack([states[f"arr_{i}"] for states in ranks])[:, :size]
                own = part(padded(whole, model.group.size), model.group.rank, model.group.size)
                model.states[i] = own.copy()
            model.steps = int(step)
            model.began_at = model.steps
            model.write()
            return
