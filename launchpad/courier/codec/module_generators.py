"""Random number generators that belong to a module, which offers their methods as functions.

`from random import random` imports a method of such a generator. If the method were pickled together with
the generator, its state would travel, too, and the receiver would draw the same numbers. So the generator
travels by name, and the receiver uses its own.
"""

from __future__ import annotations

import sys
from typing import Any

#: The module of each generator, and the generator's name there.
_NAMES = (("random", "_inst"), ("numpy.random.mtrand", "_rand"), ("torch", "default_generator"))


def is_kept(value: object) -> bool:
    """Return True for one of these generators."""
    return any(value is _find(module, name) for module, name in _NAMES)


def by_name(value: object) -> tuple[Any, ...]:
    """Reduce one of these generators to its module and its name there, for pickle."""
    module, name = next(place for place in _NAMES if value is _find(*place))
    return getattr, (sys.modules[module], name)


def _find(module: str, name: str) -> object:
    loaded = sys.modules.get(module)
    return _NO_GENERATOR if loaded is None else vars(loaded).get(name, _NO_GENERATOR)


_NO_GENERATOR = object()
