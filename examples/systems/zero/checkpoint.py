"""Checkpoints: each rank saves its shard to a file, and any number of ranks can load the shards."""

import os
from pathlib import Path

import numpy as np

from examples.systems.zero.algorithm import Stage0
from examples.systems.zero.parts import resharded


def save(folder: Path, store: Stage0) -> None:
    """Save the part that this rank updates, and its moments. From stage 1 on no other rank has these."""
    shard = np.stack([np.concatenate(store.own()), store.adam.mean, store.adam.square])
    place = folder / f"step-{store.steps}-of-{store.group.size}"
    place.mkdir(exist_ok=True)
    np.save(place / f"new-{store.group.rank}.npy", shard)
    os.replace(place / f"new-{store.group.rank}.npy", place / f"rank-{store.group.rank:03}.npy")


def load(folder: Path, store: Stage0, step: int) -> None:
    """Go on from that step, if all ranks have saved it. Another number of ranks may have saved it."""
    for place in folder.glob(f"step-{step}-of-*"):
        files = sorted(place.glob("rank-*.npy"))
        if len(files) == int(place.name.rpartition("-")[2]):
            group = store.group
            shards = [np.load(file) for file in files]
            own, *moments = resharded(shards, store.sizes, group.rank, group.size)
            store.steps = step
            store.adam.mean, store.adam.square = moments
            store.write(own)
