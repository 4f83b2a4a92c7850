"""Python values as `google.protobuf.Value`, which is to gRPC what JSON is to HTTP."""

from __future__ import annotations

import math
from typing import Any

from google.protobuf.struct_pb2 import ListValue, NullValue, Struct, Value

_EXACT = 1 << 53  # beyond this a float skips whole numbers
_MAX_DEPTH = 100  # protobuf itself reads no deeper


class NotJson(ValueError):
    """A value that JSON has no word for. Says which, and where in the whole it is."""


def to_arguments(value: Value) -> tuple[list[Any], dict[str, Any]]:
    """A list is positional arguments, an object is keyword arguments, the rest is the one argument."""
    found = to_python(value)
    if isinstance(found, list):
        return found, {}
    if isinstance(found, dict):
        return [], found
    return ([], {}) if value.WhichOneof("kind") is None else ([found], {})


def to_python(value: Value) -> Any:
    """Whole numbers are ints: JSON does not tell 3 from 3.0, and indices are more common."""
    kind = value.WhichOneof("kind")
    if kind == "struct_value":
        return {name: to_python(each) for name, each in value.struct_value.fields.items()}
    if kind == "list_value":
        return [to_python(each) for each in value.list_value.values]
    if kind == "number_value":
        number = value.number_value
        return int(number) if number.is_integer() and abs(number) <= _EXACT else number
    return None if kind in (None, "null_value") else getattr(value, kind)


def to_value(thing: Any, where: str = "the result") -> Value:
    """The way back; arrays are lists. NotJson for what cannot be said."""
    return _to_value(thing, where, 0)


def _to_value(thing: Any, where: str, depth: int) -> Value:
    if depth > _MAX_DEPTH:
        raise NotJson(f"{where[:100]}… is nested more than {_MAX_DEPTH} deep")
    if thing is None:
        return Value(null_value=NullValue.NULL_VALUE)
    if isinstance(thing, bool):
        return Value(bool_value=thing)
    if isinstance(thing, str):
        return Value(string_value=thing)
    if isinstance(thing, int | float):
        return Value(number_value=_to_number(thing, where))
    if isinstance(thing, dict):
        return _to_struct(thing, where, depth)
    if isinstance(thing, list | tuple):
        each = [_to_value(one, f"{where}[{i}]", depth + 1) for i, one in enumerate(thing)]
        return Value(list_value=ListValue(values=each))
    if callable(getattr(thing, "tolist", None)):  # arrays and their scalars, whoever makes them
        return _to_value(thing.tolist(), where, depth + 1)
    raise NotJson(
        f"{where} is a {type(thing).__name__}, which JSON cannot express. Return numbers, text, "
        "lists, dicts, arrays or None; or call it with a courier client."
    )


def _to_number(number: float, where: str) -> float:
    if isinstance(number, int) and abs(number) > _EXACT:
        raise NotJson(f"{where} is {number}, which a number of JSON cannot be exactly; return text")
    if not math.isfinite(number):
        raise NotJson(f"{where} is {number}, which is no number in JSON; return None or text")
    return float(number)


def _to_struct(things: dict[Any, Any], where: str, depth: int) -> Value:
    fields = {}
    for name, thing in things.items():
        if not isinstance(name, str):
            raise NotJson(f"{where} has the key {name!r}; in JSON keys are text")
        fields[name] = _to_value(thing, f"{where}[{name!r}]", depth + 1)
    return Value(struct_value=Struct(fields=fields))
