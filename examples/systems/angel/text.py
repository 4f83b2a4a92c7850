"""A task: is a passage of Python's standard library about concurrency, or about data of the Internet?"""

import re
import sysconfig
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from zlib import crc32

import numpy as np

from examples._shared.data import Array, Data
from examples.systems.angel.algorithm import Keys, Task

SIZE = 1 << 20  # of the hashed vocabulary of words and pairs of words
LENGTH = 64  # of a passage, in words
ROOT = (2 * LENGTH - 1) ** 0.5
ABOUT = (
    ("email", "html", "http", "json", "urllib", "wsgiref", "xml"),
    ("asyncio", "concurrent", "multiprocessing"),
)
WORD = re.compile(r"[^\W\d_]{2,}")


@dataclass(frozen=True)
class Passages(Task):
    """Logistic regression. At each clock a worker draws a batch from its share of the passages."""

    unit_s = 0.002

    data: Data
    worker: int
    batch_size: int = 64

    def batch(self, clock: int) -> Data:
        rng = np.random.default_rng([self.worker, clock])
        return self.data[rng.choice(len(self.data), self.batch_size)]

    def keys(self, clock: int) -> Keys:
        return np.unique(self.batch(clock).inputs.astype(np.int32))

    def gradient(self, weights: Array, clock: int) -> Array:
        batch = self.batch(clock)
        at = np.searchsorted(self.keys(clock), batch.inputs)
        errors = 1 / (1 + np.exp(-weights[at].sum(axis=1) / ROOT)) - batch.targets
        of_keys = np.broadcast_to(errors[:, None] / ROOT / self.batch_size, at.shape)
        gradient = np.zeros_like(weights)
        np.add.at(gradient, at, of_keys)
        return gradient

    def is_slow(self, clock: int) -> bool:
        """True with a chance of a quarter, drawn for this worker and clock."""
        return bool(np.random.default_rng([self.worker, clock, 1]).random() < 0.25)


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
