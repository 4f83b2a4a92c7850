"""Generators of random numbers that modules keep for all, and whose methods are functions of theirs.

`from random import random` gives a method of such a generator. Pickled with it, its state would travel, and
the receiver would draw the same numbers. So it travels by name, as the one that the receiver has itself.
"""

from __future__ import annotations

import sys
from typing import Any

#: Module, and the name under which it has it.
_NAMES = (("random", "_inst"), ("numpy.random.mtrand", "_rand"), ("torch", "default_generator"))


def is_kept(value: object) -> bool:
    """True for such a generator."""
    return any(value is _find(module, name) for module, name in _NAMES)


def by_name(value: object) -> tuple[Any, ...]:
    """Reduces such a generator to the name under which its module has it, for pickle."""
    where = next((module, name) for module, name in _NAMES if value is _find(module, name))
    return getattr, (sys.modules[where[0]], where[1])


def _find(module: str, name: str) -> object:
    loaded = sys.modules.get(module)
    return _NO_GENERATOR if loaded is None else vars(loaded).get(name, _NO_GENERATOR)


_NO_GENERATOR = object()
