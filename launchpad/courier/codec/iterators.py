"""The rule that says which values are streams, whose items are sent one after the other.

An iterator is a stream if nothing else can be meant by it: it is one of Python's own (a generator, `map`,
`zip`, an iterator of `itertools`, an iterator over a list or a dict), or one of ours. Any other object with
`__next__`, such as an open file or a sampler, is pickled, unless `lp.stream` declares it a stream.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Generator
from typing import NoReturn

#: Modules whose iterators consist of nothing but their items.
_OF_PYTHON = frozenset({"builtins", "itertools", "_collections", "array"})


class StreamedIterator:
    """A base class for iterators that are streams if they are arguments or results of calls."""

    def __reduce__(self) -> NoReturn:
        raise TypeError(
            "a stream cannot be sent inside of another value, nor pickled: give it to a call as an argument "
            "of its own, or collect its items in a list"
        )


def is_stream(value: object) -> bool:
    """Return True if the items of the value are sent one after the other."""
    kind = type(value)
    if not is_iterator(kind):
        return False
    # `Generator` also includes compiled generators (Cython), and classes with all methods of a generator.
    return kind.__module__ in _OF_PYTHON or issubclass(
        kind, (StreamedIterator, Generator, AsyncGenerator)
    )


def is_iterator(kind: type) -> bool:
    """Return True if objects of this type have a next item, sync or async."""
    return hasattr(kind, "__next__") or hasattr(kind, "__anext__")
