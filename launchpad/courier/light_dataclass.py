"""Dataclasses that take little time to import.

The standard library generates and compiles source code for the methods of each class. That takes 0.4 to 1 ms
per class, and the code that starts a worker has a hundred classes. Here all classes share the same functions
as methods. The fields are the standard library's, so `fields`, `replace`, `asdict` and `match` work as usual.
Making an instance takes some microseconds, so use the standard library's dataclass for objects that are made
once per call. Also use the standard library's for classes with `slots`, and for classes that users construct:
with this module's, `inspect.signature` finds no parameters.
"""

from __future__ import annotations

import dataclasses
import reprlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from dataclasses import dataclass as dataclass
else:

    def dataclass(cls=None, /, *, frozen=False, eq=True):
        """Do what `dataclasses.dataclass` does. Of its options there are only `frozen` and `eq`."""
        if cls is None:
            return lambda cls: dataclass(cls, frozen=frozen, eq=eq)
        own_names = {name for name, value in vars(cls).items() if value is not None}
        cls = dataclasses.dataclass(init=False, repr=False, eq=False)(cls)
        methods = {"__init__": _init_of(cls), "__repr__": _repr}
        if eq:
            methods["__eq__"], hashed = _comparison_of(cls)
            methods["__hash__"] = hashed if frozen else None
        if frozen:
            methods["__setattr__"], methods["__delattr__"] = _refusals_of(cls)
        for name, method in methods.items():
            if name not in own_names:
                setattr(cls, name, method)
        return cls

    def _init_of(cls):
        fields = dataclasses.fields(cls)
        names = [field.name for field in fields if field.init]
        has_post_init = hasattr(cls, "__post_init__")

        def initialize(self, /, *args, **kwargs):
            arguments = dict(zip(names, args)) | kwargs  # noqa: B905  too many arguments are refused below
            if len(arguments) != len(args) + len(kwargs) or not arguments.keys() <= set(names):
                raise TypeError(f"{type(self).__name__} takes {names}, got {args} and {kwargs}")
            values = {}
            for field in fields:
                name = field.name
                if name in arguments:
                    values[name] = arguments[name]
                elif field.default is not dataclasses.MISSING:
                    values[name] = field.default
                elif field.default_factory is not dataclasses.MISSING:
                    values[name] = field.default_factory()
                elif field.init:
                    raise TypeError(f"{type(self).__name__} needs {name!r}; it takes {names}")
            self.__dict__.update(values)
            if has_post_init:
                self.__post_init__()

        return initialize

    @reprlib.recursive_repr()
    def _repr(self):
        fields = [field.name for field in dataclasses.fields(self) if field.repr]
        text = ", ".join(f"{name}={getattr(self, name)!r}" for name in fields)
        return f"{type(self).__qualname__}({text})"

    def _comparison_of(cls):
        compared = [field.name for field in dataclasses.fields(cls) if field.compare]

        def values(self):
            return tuple([getattr(self, name) for name in compared])

        def equals(self, other):
            return values(self) == values(other) if type(other) is type(self) else NotImplemented

        return equals, lambda self: hash(values(self))

    def _refusals_of(cls):
        names = {field.name for field in dataclasses.fields(cls)}

        def refuse_to_set(self, name, value):
            if type(self) is cls or name in names:
                raise dataclasses.FrozenInstanceError(f"cannot assign to field {name!r}")
            super(cls, self).__setattr__(name, value)

        def refuse_to_delete(self, name):
            if type(self) is cls or name in names:
                raise dataclasses.FrozenInstanceError(f"cannot delete field {name!r}")
            super(cls, self).__delattr__(name)

        return refuse_to_set, refuse_to_delete
