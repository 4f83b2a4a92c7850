"""Search for the object of a payload that cannot be made in a worker, and for the code that uses it.

pickle's own error names neither. So the payload is read once more, by the Unpickler that is written in
Python. When that Unpickler fails, its stack shows the code that was begun, and the name of the object in this
code.
"""

from __future__ import annotations

import io
import pickle
import types
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

from launchpad.courier.codec import by_value

_Unpickler: Any = pickle._Unpickler  # type: ignore[attr-defined,unused-ignore]
_MAKES = {pickle.REDUCE[0]: 2, pickle.BUILD[0]: 2, pickle.NEWOBJ[0]: 2, pickle.NEWOBJ_EX[0]: 3}
"""Operation → how many objects it takes from the stack."""


class BrokenPart(NamedTuple):
    """A part of a payload that cannot be made.

    Attributes:
        what: The part, such as `what eval returns`.
        user: The code that uses it, such as `the global x of f`; empty if that is not known.
    """

    what: str
    user: str


def find(
    payload: bytes, buffers: Iterable[Any], error: Exception, nested: Callable[..., Any]
) -> BrokenPart | None:
    """Return the part that raised this error when the payload was read; None if it cannot be found.

    Args:
        nested: The function that the payload calls with another payload, as bytes, and its buffers.
    """
    parts: list[BrokenPart] = []
    try:
        _read(payload, buffers, nested, parts)
    except Exception as again:
        if type(again) is type(error) and parts:
            return parts[0]
    return None


def _read(
    payload: bytes, buffers: Iterable[Any], nested: Callable[..., Any], parts: list[BrokenPart]
) -> Any:
    unpickler = _Unpickler(io.BytesIO(payload), buffers=buffers)
    description = ""

    def find_class(module: str, name: str) -> Any:
        nonlocal description
        description = f"{module}.{name}"
        named = _Unpickler.find_class(unpickler, module, name)
        if named is nested:
            return lambda inner, buffers=(): nested_value(inner, buffers)
        return named

    def nested_value(inner: bytes, buffers: Iterable[Any]) -> Any:
        return types.SimpleNamespace(function=_read(inner, buffers, nested, parts))

    def remembering(operation: int) -> Callable[[Any], None]:
        original = _Unpickler.dispatch[operation]
        count = _MAKES[operation]

        def remember(unpickler: Any) -> None:
            nonlocal description
            description = _description(operation, *unpickler.stack[-count:][:2])
            original(unpickler)

        return remember

    unpickler.find_class = find_class
    unpickler.dispatch = {
        **_Unpickler.dispatch,
        **{operation: remembering(operation) for operation in _MAKES},
    }
    try:
        return unpickler.load()
    except Exception:
        if not parts:
            parts.append(BrokenPart(description, _user([*unpickler.metastack, unpickler.stack])))
        raise


def _description(operation: int, made_by: Any, arguments: Any) -> str:
    if operation == pickle.BUILD[0]:
        return f"an object of {_name(type(made_by))}"
    if isinstance(made_by, type):
        return f"an object of {_name(made_by)}"
    module = getattr(made_by, "__module__", None)
    if module == "copyreg" and arguments and isinstance(arguments[0], type):
        return f"an object of {_name(arguments[0])}"
    if made_by is by_value.make:
        return f"the class {next(argument for argument in arguments if isinstance(argument, str))}"
    if module == by_value.__name__ and arguments:  # the object was made, and now gets its state
        return _name(arguments[0])
    return f"what {_name(made_by)} returns"


def _name(named: Any) -> str:
    name = getattr(named, "__qualname__", None) or repr(named)
    module = getattr(named, "__module__", None)
    return name if module in ("__main__", "builtins", None) else f"{module}.{name}"


def _user(stacks: list[list[Any]]) -> str:
    """Return the innermost code that was begun, and the last name read in it; empty if there is no code."""
    flat = [(value, depth) for depth, stack in enumerate(stacks) for value in stack]
    unfinished = [i for i, (value, _) in enumerate(flat) if by_value.is_unfinished(value)]
    if not unfinished:
        return ""
    code = flat[unfinished[-1]][0]
    after = flat[unfinished[-1] + 1 :]
    name = code.__qualname__
    if isinstance(code, type):
        attribute = _last_key(after)
        return f"the attribute {attribute} of {name}" if attribute else name
    its_globals = [i for i, (value, _) in enumerate(after) if value == "__globals__"]
    variable = _last_key(after[its_globals[-1] + 1 :]) if its_globals else ""
    return f"the global {variable} of {name}" if variable else name


def _last_key(entries: list[tuple[Any, int]]) -> str:
    """Return the last key of a dict that is being read: keys and values alternate, at one depth."""
    while entries and not isinstance(entries[0][0], str):
        entries = entries[1:]
    depth = entries[0][1] if entries else 0
    key = ""
    for value, its_depth in entries[::2]:
        if its_depth != depth or not isinstance(value, str):
            break
        key = value
    return key
