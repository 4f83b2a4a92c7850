"""What a worker has written that notes its attempt, its host and the time every 50 ms, and nothing else."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple


class Written(NamedTuple):
    """When an attempt wrote first and last, as `time.time()`, and on which host."""

    host: str
    first: float
    last: float


def read_attempts(file: Path) -> dict[int, Written]:
    """Return attempt → what it has written, in the order of the attempts' first lines."""
    attempts: dict[int, Written] = {}
    for line in file.read_text().splitlines():
        attempt, host, at = line.split()
        first = attempts.get(int(attempt), Written("", float(at), 0.0)).first
        attempts[int(attempt)] = Written(host, first, float(at))
    return attempts
