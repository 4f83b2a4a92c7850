"""A library that a script configures: it has variables, a registry, and functions to extend."""

from __future__ import annotations

import abc
import contextvars
import functools
from collections.abc import Callable
from random import Random
from typing import Any

DEBUG = False
NUMBER = contextvars.ContextVar("NUMBER", default=0)
MODELS: dict[str, type] = {}


def register(name: str) -> Callable[[type], type]:
    def keep(kind: type) -> type:
        MODELS[name] = kind
        return kind

    return keep


@functools.singledispatch
def describe(value: object) -> str:
    return "something"


def greet() -> str:
    return "hello"


class Base(metaclass=abc.ABCMeta):
    """Something with a name; classes may be registered as such."""

    @property
    @abc.abstractmethod
    def name(self) -> str: ...


def is_seeded_with_3(random: Any) -> bool:
    """True for a module or generator that draws nothing else than one that was made with this seed."""
    return bool(random.getstate() == Random(3).getstate())
