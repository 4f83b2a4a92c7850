"""Functions in the form that a pool sends.

Each worker gets the definition of a function once. Each chunk of calls contains only the function's digest.
"""

from __future__ import annotations

import functools
import hashlib
import io
import pickle
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from launchpad.courier.codec import by_value, pickling, tensors
from launchpad.courier.server.decorators import IDEMPOTENT
from launchpad.runtime import random_numbers
from launchpad.runtime.random_numbers import ScriptGenerator

_DIGEST_BYTES = 16
_KEPT = 256

Pickled = tuple[bytes, tuple[bytes, ...]]
"""A pickle and its buffers."""


class Definition(NamedTuple):
    """A function as bytes, and its arguments from partials. Each call gets new copies of these arguments."""

    function: Pickled
    arguments: Pickled | None


@dataclass(eq=False)
class PoolFunction:
    """A function for workers to run.

    Attributes:
        digest: The digest of its definition. Functions with equal digests are the same.
        name: Its name, for error messages.
        is_idempotent: True if a call may run twice.
        mean_s: The recent average duration of a call, in seconds; None before the first one.
    """

    digest: bytes
    definition: Definition
    name: str
    is_idempotent: bool
    mean_s: float | None = None

    def note(self, seconds: float, n_calls: int) -> None:
        """Include the total duration of some calls in the average."""
        of_these = seconds / n_calls
        self.mean_s = of_these if self.mean_s is None else 0.5 * (self.mean_s + of_these)


class PoolFunctions:
    """The functions of one pool, by digest, with their average durations."""

    def __init__(self, are_idempotent: bool) -> None:
        self._are_idempotent = are_idempotent
        self._known: OrderedDict[tuple[bytes, bool], PoolFunction] = OrderedDict()

    def find(self, function: Callable[..., Any]) -> PoolFunction:
        """Return the PoolFunction of a function.

        This pickles the function each time, because the values that it refers to may have changed.

        Raises:
            TypeError: the function is not callable.
            Exception: pickling the function has failed.
        """
        if not callable(function):
            raise TypeError(f"a pool runs functions, and was given {function!r}")
        plain: Any = function
        is_idempotent = self._are_idempotent or getattr(plain, IDEMPOTENT, False)
        # The partials around the function, the innermost first.
        partials: list[tuple[tuple[Any, ...], dict[str, Any]]] = []
        while isinstance(plain, functools.partial):
            partials.insert(0, (plain.args, plain.keywords))
            plain = plain.func
            is_idempotent = is_idempotent or getattr(plain, IDEMPOTENT, False)
        definition = Definition(_pickled(plain, _dumps), _pickled(partials) if partials else None)
        digest = hashlib.blake2b(digest_size=_DIGEST_BYTES)
        for body, buffers in filter(None, definition):
            for part in (body, *buffers):
                digest.update(part)
        key = digest.digest(), is_idempotent
        if key not in self._known:
            name = getattr(plain, "__qualname__", type(plain).__qualname__)
            self._known[key] = PoolFunction(key[0], definition, name, is_idempotent)
        self._known.move_to_end(key)
        if len(self._known) > _KEPT:
            self._known.popitem(last=False)
        return self._known[key]


class DefinedFunction:
    """A function in a worker. The first call unpickles and keeps it.

    Arguments from partials are not kept, because each call gets its own copies.
    """

    def __init__(self, definition: Definition) -> None:
        self._pickled: Pickled | None = definition.function
        self._arguments = definition.arguments
        self._function: Callable[..., Any] | None = None

    def load(self) -> Callable[..., Any]:
        """Return the function for one call. Errors of unpickling are raised."""
        pickled = self._pickled
        if self._function is None and pickled is not None:
            self._function = _unpickled(pickled)
            self._pickled = None
        assert self._function is not None
        function = self._function
        if self._arguments is not None:
            for args, keywords in _unpickled(self._arguments):
                function = functools.partial(function, *args, **keywords)
        return function


class _FunctionPickler(by_value.Pickler):
    """A pickler that omits the state of the script's random generators.

    With this state, all workers would draw the same random numbers.
    """

    keeps_definitions = False

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self._generators: dict[int, ScriptGenerator] = {}

    def reducer_override(self, obj: Any) -> Any:
        return random_numbers.without_generators(super().reducer_override(obj), self._generators)


def _dumps(value: object, protocol: int, keep: Callable[[Any], bool]) -> bytes:
    with io.BytesIO() as file:
        _FunctionPickler(file, protocol, keep, tensors.reducers()).dump(value)
        return file.getvalue()


def _pickled(value: object, dumps: pickling.Dumps | None = None) -> Pickled:
    body, views = pickling.encode(value, dumps)
    return body, tuple(bytes(view) for view in views)


def _unpickled(pickled: Pickled) -> Any:
    body, buffers = pickled
    return pickle.loads(body, buffers=[bytearray(buffer) for buffer in buffers])


class DefinedFunctions:
    """The functions that a worker has received last, by digest. The caller of the methods holds a lock."""

    def __init__(self, most: int = _KEPT) -> None:
        self._most = most
        self._known: OrderedDict[bytes, DefinedFunction] = OrderedDict()

    def add(self, definitions: Mapping[bytes, Definition]) -> None:
        """Add the definitions that are new. `find` drops the functions that were not used for longest."""
        for digest, definition in definitions.items():
            if digest not in self._known:
                self._known[digest] = DefinedFunction(definition)

    def find(self, digest: bytes) -> DefinedFunction | None:
        """Return the function with this digest. Return None if it never came, or was dropped."""
        function = self._known.get(digest)
        if function is not None:
            self._known.move_to_end(digest)
        while len(self._known) > self._most:
            self._known.popitem(last=False)
        return function
