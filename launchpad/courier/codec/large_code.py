"""Warnings about code that travels by value and takes large objects along."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from types import FunctionType
from typing import Any

from launchpad.courier import fork, log
from launchpad.courier.interruptions import Lock

Encode = Callable[[Any], tuple[bytes, list[memoryview]]]

LARGE = 1 << 20
_MAX_PARTS = 1000  # the most parts of a message to look at
_warned_of: set[str] = set()  # names of classes and functions of the launching script
# Held so that only one thread warns of each class or function.
_lock = fork.free_in_child(Lock())


def warn(message: object, encode: Encode) -> None:
    """Warn once of each class and function of a message, if it is large by itself."""
    for code in _code_in(message):
        with _lock:
            if code.__qualname__ in _warned_of:
                continue
            _warned_of.add(code.__qualname__)
        size = _size(code, encode)
        if size < LARGE:
            continue
        parts = {name: _size(value, encode) for name, value in _globals_of(code).items()}
        name, most = max(parts.items(), key=lambda part: part[1], default=("", 0))
        why = f", of which its global {name!r} is {most:,}" if most >= LARGE else ""
        log.warning(
            f"{code.__qualname__} of the launching script is sent by value, with all that it uses: {size:,} "
            f"bytes in each call{why}. Put it into a module that both sides import, or hand over what it "
            "needs as an argument, once."
        )


def _code_in(message: object) -> Iterator[Any]:
    """Yield the classes and functions of `__main__` in a message."""
    todo = [message]
    for _ in range(_MAX_PARTS):
        if not todo:
            return
        part = todo.pop()
        code = part if isinstance(part, FunctionType | type) else type(part)
        if code.__module__ == "__main__":
            yield code
        if isinstance(part, dict):
            todo += part.values()
        elif isinstance(part, list | tuple):
            todo += part
        elif code.__module__ == "__main__" and code is not part:
            todo += getattr(part, "__dict__", {}).values()


def _globals_of(code: Any) -> dict[str, Any]:
    """Return the globals that a function, or the methods of a class, use."""
    members = [code] if isinstance(code, FunctionType) else list(vars(code).values())
    used = {}
    for function in members:
        if isinstance(function, FunctionType):
            for name in function.__code__.co_names:
                if name in function.__globals__:
                    used[name] = function.__globals__[name]
    return used


def _size(value: object, encode: Encode) -> int:
    try:
        body, buffers = encode(value)
    except Exception:
        return 0
    return len(body) + sum(buffer.nbytes for buffer in buffers)
