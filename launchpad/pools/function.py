"""A function as a pool sends it: its definition once to each worker, its digest with each job."""

from __future__ import annotations

import functools
import hashlib
import pickle
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from launchpad.courier.codec import pickling
from launchpad.courier.server.decorators import IDEMPOTENT

_DIGEST_BYTES = 16
_KEPT = 256

Definition = tuple[bytes, tuple[bytes, ...]]
"""A pickle and its buffers."""


@dataclass(eq=False)
class PoolFunction:
    """A function to be run by workers.

    Attributes:
        digest: Of its definition: what has the same does the same.
        name: For errors.
        is_idempotent: Whether it may run twice.
        mean_s: How long a call has taken on the average, lately; None: none has been seen.
    """

    digest: bytes
    definition: Definition
    name: str
    is_idempotent: bool
    mean_s: float | None = None

    def note(self, seconds: float, n_calls: int) -> None:
        """Takes the time of some calls into the average."""
        of_these = seconds / n_calls
        self.mean_s = of_these if self.mean_s is None else 0.5 * (self.mean_s + of_these)


class PoolFunctions:
    """The functions of one pool: what has the same digest is one, with what is known of its duration."""

    def __init__(self, are_idempotent: bool) -> None:
        self._are_idempotent = are_idempotent
        self._known: OrderedDict[tuple[bytes, bool], PoolFunction] = OrderedDict()

    def find(self, function: Callable[..., Any]) -> PoolFunction:
        """Pickles the function: what it refers to may have changed since it was pickled last.

        Raises:
            TypeError: it cannot be called.
            Exception: what pickling it raised.
        """
        if not callable(function):
            raise TypeError(f"a pool runs functions, and was given {function!r}")
        body, views = pickling.encode(function)
        definition = body, tuple(bytes(view) for view in views)
        digest = hashlib.blake2b(digest_size=_DIGEST_BYTES)
        for part in (body, *definition[1]):
            digest.update(part)
        plain: Any = function
        is_idempotent = self._are_idempotent or getattr(plain, IDEMPOTENT, False)
        while isinstance(plain, functools.partial):
            plain = plain.func
            is_idempotent = is_idempotent or getattr(plain, IDEMPOTENT, False)
        key = digest.digest(), is_idempotent
        if key not in self._known:
            name = getattr(plain, "__qualname__", type(plain).__qualname__)
            self._known[key] = PoolFunction(key[0], definition, name, is_idempotent)
        self._known.move_to_end(key)
        if len(self._known) > _KEPT:
            self._known.popitem(last=False)
        return self._known[key]


class DefinedFunction:
    """A function in a worker: made of its definition when it is called first, and kept."""

    def __init__(self, definition: Definition) -> None:
        self._definition: Definition | None = definition
        self._function: Callable[..., Any] | None = None

    def load(self) -> Callable[..., Any]:
        """The function. Raises what unpickling it raises."""
        definition = self._definition
        if self._function is None and definition is not None:
            body, buffers = definition
            self._function = pickle.loads(body, buffers=[bytearray(each) for each in buffers])
            self._definition = None
        assert self._function is not None
        return self._function


class DefinedFunctions:
    """The functions that a worker has been sent last, by their digests. Used with a lock held."""

    def __init__(self, kept: int = _KEPT) -> None:
        self._kept = kept
        self._known: OrderedDict[bytes, DefinedFunction] = OrderedDict()

    def add(self, definitions: Mapping[bytes, Definition]) -> None:
        """Takes what it does not know yet; what was not used for longest is dropped."""
        for digest, definition in definitions.items():
            if digest not in self._known:
                self._known[digest] = DefinedFunction(definition)

    def find(self, digest: bytes) -> DefinedFunction | None:
        """The function; None: it was never here, or is dropped."""
        found = self._known.get(digest)
        if found is not None:
            self._known.move_to_end(digest)
        while len(self._known) > self._kept:
            self._known.popitem(last=False)
        return found
