"""Patch: what a user wants otherwise in each pod. Pure.

dict into dict     merged, key by key; None takes a key away
list into list     of things with names: merged by name, else added; any other list is replaced
all else           replaced
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

ALL = "*"
"""In a list of things with names: each of them."""


def patched(value: Any, patch: Any) -> Any:
    """The value with the patch merged in; neither is changed.

    Example:
      patched(pod, {"spec": {"containers": [{"name": "*", "volumeMounts": [{"name": "data", …}]}]}})
    """
    if isinstance(value, Mapping) and isinstance(patch, Mapping):
        return _merged(value, patch)
    if _have_names(value) and _have_names(patch):
        return _merged_by_name(value, patch)
    return patch


def _merged(value: Mapping[str, Any], patch: Mapping[str, Any]) -> dict[str, Any]:
    merged = {key: patched(old, patch[key]) if key in patch else old for key, old in value.items()}
    merged |= {key: new for key, new in patch.items() if key not in value}
    return {key: new for key, new in merged.items() if new is not None}


def _merged_by_name(value: Sequence[Any], patch: Sequence[Any]) -> list[Any]:
    merged = {each["name"]: each for each in value}
    for new in patch:
        name = new["name"]
        for meant in list(merged) if name == ALL else [name]:
            merged[meant] = patched(merged.get(meant, {}), {**new, "name": meant})
    return list(merged.values())


def _have_names(value: object) -> bool:
    if not isinstance(value, (list, tuple)) or not value:
        return False
    return all(isinstance(each, Mapping) and "name" in each for each in value)
