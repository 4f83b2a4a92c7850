"""The text whose words are counted: which files there are, and which words are in one."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path

WORD = re.compile(r"[^\W\d_]+")  # letters of any alphabet
SKIPPED_FOLDERS = frozenset({"site-packages", "dist-packages", "__pycache__"})


def find_texts(folder: Path, pattern: str) -> list[Path]:
    """Return the files under `folder` that match `pattern`; installed packages are left out."""
    files = [path for path in sorted(folder.rglob(pattern)) if path.is_file()]
    texts = [path for path in files if SKIPPED_FOLDERS.isdisjoint(path.relative_to(folder).parts)]
    if not texts:
        raise FileNotFoundError(f"no file in {folder} matches {pattern!r}; try another --pattern")
    return texts


def read(path: Path) -> str:
    """Return the text of a file in lower case. A file that is not UTF-8 counts as empty.

    Python's own library has a few of those, to test that Python refuses them.
    """
    try:
        return path.read_text(encoding="utf-8").lower()
    except UnicodeDecodeError:
        return ""


def count_words(path: Path) -> Iterable[tuple[str, int]]:
    """Return the words of one file, each with its count: the function to map."""
    return Counter(WORD.findall(read(path))).items()


def add_up(word: str, counts: Sequence[int]) -> int:
    """Return how often the word occurs: the function to reduce."""
    return sum(counts)
