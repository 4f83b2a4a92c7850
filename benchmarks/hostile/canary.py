"""An object whose unpickling is noticed."""

from __future__ import annotations

import threading

_lock = threading.Lock()
_n_touched = 0


class Canary:
    """Whoever unpickles it, counts it: in the process that does."""

    def __reduce__(self) -> tuple[object, ...]:
        return touch, ()


def touch() -> None:
    global _n_touched
    with _lock:
        _n_touched += 1


def n_touched() -> int:
    return _n_touched
