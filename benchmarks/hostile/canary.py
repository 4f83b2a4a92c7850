"""An object that counts how often it is unpickled."""

from __future__ import annotations

import threading

# Threads of several connections may unpickle canaries at once, and `+=` could lose a count.
_lock = threading.Lock()
_n_touched = 0


class Canary:
    """An object that counts, in the process that unpickles it, how often that happens."""

    def __reduce__(self) -> tuple[object, ...]:
        return touch, ()


def touch() -> None:
    global _n_touched
    with _lock:
        _n_touched += 1


def n_touched() -> int:
    return _n_touched
