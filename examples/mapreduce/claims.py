"""Checks of the counts, by code that shares nothing with the mappers but the files."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path

from examples._shared.checks import check
from examples.mapreduce.text import read


class Letters(dict[int, str]):
    """A table for `str.translate`, which keeps letters, and replaces all other characters by spaces."""

    def __missing__(self, code: int) -> str:
        character = chr(code)
        is_letter = character.isalnum() and not character.isdecimal()
        self[code] = character if is_letter else " "
        return self[code]


def check_counts(reducers: Sequence[Mapping[str, int]], texts: Sequence[Path]) -> Counter[str]:
    """Check the results of all reducers, and return them as one counter."""
    counts: Counter[str] = Counter()
    for own in reducers:
        counts.update(own)
    n_keys = sum(map(len, reducers))
    check(
        n_keys == len(counts),
        "each word has one owner among the reducers",
        f"they have {' + '.join(f'{len(own):,}' for own in reducers)} of {len(counts):,} words",
    )
    letters = Letters()
    expected: Counter[str] = Counter()
    for path in texts:
        expected.update(read(path).translate(letters).split())
    wrong = sorted(word for word in counts | expected if counts[word] != expected[word])
    measured = f"{expected.total():,} words, {len(expected):,} different"
    if wrong:
        first = wrong[0]
        times = f"occurs {expected[first]:,} times, not {counts[first]:,}"
        measured = f"{len(wrong):,} are wrong: {first!r} {times}"
    check(not wrong, "the counts agree with those of one process, which has other code", measured)
    return counts
