"""A search for the part of a value that cannot be pickled."""

from __future__ import annotations

import contextlib
import types
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any

_MAX_TRIED = 10_000  # parts; the search is only for an error's text, and must end

Step = tuple[str, Any]


def find_culprit(value: Any, can_be_sent: Callable[[Any], bool]) -> Step:
    """Return the path to the innermost part of `value` that can't be sent (`.cfg['lock']`), and the part.

    The search follows pickle: it looks at the state that an object gives to pickle, not at all of its
    attributes. If no part is at fault, the path is empty, and the part is `value` itself.
    """
    # The objects are kept, because ids are unique only while the objects exist.
    visited = {id(value): value}
    todo = deque([("", value)])
    n_tried = 0
    while todo:
        path, part = todo.popleft()
        is_innermost = True
        for step, child in _parts(part):
            n_tried += 1
            if n_tried > _MAX_TRIED:
                return path, part
            if not can_be_sent(child):
                is_innermost = False
                if id(child) not in visited:
                    visited[id(child)] = child
                    todo.append((path + step, child))
        if is_innermost:
            return path, part
    return "", value


def _parts(value: Any) -> Iterator[Step]:
    """Yield the parts of `value` that pickle would visit next, each with its step in the path."""
    if isinstance(value, types.FunctionType):  # cloudpickle sends it with all that it uses
        for name, cell in zip(value.__code__.co_freevars, value.__closure__ or (), strict=True):
            with contextlib.suppress(ValueError):  # not assigned yet
                yield f".<closure {name}>", cell.cell_contents
        for name in value.__code__.co_names:
            if name in value.__globals__:
                yield f".<global {name}>", value.__globals__[name]
        return
    if isinstance(value, dict):
        yield from ((f"[{key!r:.40}]", child) for key, child in value.items())
    elif isinstance(value, list | tuple):
        yield from ((f"[{i}]", child) for i, child in enumerate(value))
    elif isinstance(value, set | frozenset):
        yield from (("{…}", child) for child in value)
    if type(value) in (dict, list, tuple, set, frozenset):
        return
    try:
        reduced = value.__reduce_ex__(5)
    except Exception:  # this is the culprit
        return
    if not isinstance(reduced, tuple):
        return
    arguments = reduced[1]
    state = reduced[2] if len(reduced) > 2 else None
    yield from ((f".<argument {i}>", child) for i, child in enumerate(arguments))
    for attributes in state if isinstance(state, tuple) else (state,):
        if isinstance(attributes, dict):
            yield from ((f".{name}", child) for name, child in attributes.items())
