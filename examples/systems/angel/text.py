"""Passages of Python's standard library, and their subject: concurrency, or data of the Internet."""

import re
import sysconfig
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from zlib import crc32

import numpy as np

from examples.systems.angel.regression import Rows

SIZE = 1 << 20  # of the hashed vocabulary of words and pairs of words
LINES = 20  # in a passage
ABOUT = (
    ("email", "html", "http", "json", "urllib", "wsgiref", "xml"),
    ("asyncio", "concurrent", "multiprocessing"),
)
WORD = re.compile(r"[^\W\d_]{2,}")


def load() -> tuple[Rows, Rows]:
    """Return the passages to train on, and those of the fifth of the files that is held out."""
    training: list[tuple[list[int], int]] = []
    held_out: list[tuple[list[int], int]] = []
    library = Path(sysconfig.get_path("stdlib"))
    for label, packages in enumerate(ABOUT):
        for file in sorted(file for name in packages for file in (library / name).rglob("*.py")):
            is_held_out = crc32(str(file.relative_to(library)).encode()) % 5 == 0
            (held_out if is_held_out else training).extend(
                (keys, label) for keys in passages(file.read_text(encoding="utf-8"))
            )
    return rows(training), rows(held_out)


def passages(text: str) -> Iterator[list[int]]:
    """Yield the keys of each passage that has enough words."""
    lines = text.lower().splitlines()
    for start in range(0, len(lines), LINES):
        words = WORD.findall("\n".join(lines[start : start + LINES]))
        if len(words) >= LINES:
            pairs = (f"{first} {second}" for first, second in pairwise(words))
            yield sorted({crc32(word.encode()) % SIZE for word in (*words, *pairs)})


def rows(labelled: list[tuple[list[int], int]]) -> Rows:
    """Return passages, which are keys and a label, as rows."""
    return Rows(
        np.concatenate([np.array(keys, np.int32) for keys, _ in labelled]),
        np.array([len(keys) for keys, _ in labelled]),
        np.array([float(label) for _, label in labelled]),
    )
