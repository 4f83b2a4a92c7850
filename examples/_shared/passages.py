"""A sparse problem: is a passage of Python's library about concurrency, or about data of the Internet?"""

from __future__ import annotations

import re
import sysconfig
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from zlib import crc32

import numpy as np

from examples._shared.data import Array, Data, Keys
from examples._shared.problem import Problem

SIZE = 1 << 18  # of the hashed vocabulary of words and pairs of words
LENGTH = 64  # of a passage, in words
ROOT = (2 * LENGTH - 1) ** 0.5
ABOUT = (
    ("email", "html", "http", "json", "urllib", "wsgiref", "xml"),
    ("asyncio", "concurrent", "multiprocessing"),
)
WORD = re.compile(r"[^\W\d_]{2,}")


class Regression:
    """Logistic regression, as a network whose inputs are keys. The score of a row is a sum of weights."""

    def __init__(self, size: int = SIZE) -> None:
        self.sizes = [size]

    def first_parameters(self, seed: int = 0) -> Array:
        return np.zeros(self.sizes[0])

    def part(self, first: int, end: int) -> Regression:
        return self

    def forward(self, parameters: Array, inputs: Array) -> list[Array]:
        scores = parameters[inputs].sum(axis=1) / ROOT
        return [inputs, np.stack([np.zeros_like(scores), scores], axis=1)]

    def backward(
        self, parameters: Array, values: list[Array], gradient: Array
    ) -> tuple[Array, Array]:
        by_parameters = np.zeros_like(parameters)
        np.add.at(by_parameters, values[0].astype(np.int64), gradient[:, 1:] / ROOT)
        return gradient, by_parameters


class Passages(Problem):
    """A problem in which few of the weights occur in a slice of a batch."""

    def keys(self, step: int, worker: int) -> Keys:
        return np.unique(self.slice(step, worker).inputs).astype(np.int32)

    def gradient(self, parameters: Array, step: int, worker: int) -> Array:
        """Return the gradient of the mean loss by the parameters of `keys`, which are the ones given."""
        data = self.slice(step, worker)
        places = np.searchsorted(self.keys(step, worker), data.inputs)
        return self.loss_and_gradient(parameters, Data(places, data.targets))[1]


def load() -> tuple[Data, Data]:
    """Return the passages to train on, and those of the fifth of the files that is held out."""
    parts: tuple[list[tuple[list[int], int]], ...] = [], []
    library = Path(sysconfig.get_path("stdlib"))
    for label, packages in enumerate(ABOUT):
        for file in sorted(file for name in packages for file in (library / name).rglob("*.py")):
            is_held_out = crc32(str(file.relative_to(library)).encode()) % 5 == 0
            for keys in passages(file.read_text(encoding="utf-8")):
                parts[is_held_out].append((keys, label))
    training, held_out = (Data(*map(np.array, zip(*part, strict=True))) for part in parts)
    return training, held_out


def passages(text: str) -> Iterator[list[int]]:
    """Yield the keys of each passage: of its words, and of the pairs of words that follow each other."""
    words = WORD.findall(text.lower())
    for start in range(0, len(words) - LENGTH + 1, LENGTH):
        own = words[start : start + LENGTH]
        pairs = [f"{first} {second}" for first, second in pairwise(own)]
        yield [crc32(each.encode()) % SIZE for each in (*own, *pairs)]
