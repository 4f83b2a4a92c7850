"""The text whose words are counted: which files there are, and which words are in one."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
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


def count_words(path: Path) -> Counter[str]:
    """Count the words of one file. A file that is not UTF-8 counts as empty.

    Python's own library has a few of those, to test that Python refuses them.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except UnicodeDecodeError:
        return Counter()
    return Counter(WORD.findall(text.lower()))


def count_all(paths: Sequence[Path]) -> Counter[str]:
    """Count the words of all files in this process, one after another."""
    total: Counter[str] = Counter()
    for path in paths:
        total.update(count_words(path))
    return total
