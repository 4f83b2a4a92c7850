"""Classes that travel by value: made once where they arrive, and left alone from then on.

cloudpickle sends a class of `__main__` as a recipe, and knows it again where it has been made before, or
where it came from. But it then gives that class the attributes of the recipe all over again, and with
them functions whose globals are copies. Here only a class that the recipe has made gets its attributes:

    make(recipe)   the class that is known already, or an empty one, noted as unfinished
    fill(…)        gives an unfinished one its attributes; passes over any other

Streams name these two functions, so that nothing but `pickle.loads` is needed to read them.
"""

from __future__ import annotations

import io
import threading
import weakref
from collections import ChainMap
from collections.abc import Callable
from typing import Any

import cloudpickle
from cloudpickle import cloudpickle as _private

from launchpad.courier.codec import tensors

_unfinished: weakref.WeakSet[type] = weakref.WeakSet()
_lock = threading.RLock()  # a metaclass may unpickle while it makes a class


class Pickler(cloudpickle.Pickler):  # type: ignore[misc,unused-ignore]
    """cloudpickle's, for classes as described above."""

    def reducer_override(self, obj: Any) -> Any:
        """What cloudpickle does, with our two functions around its own."""
        tensors.check(obj)
        reduced = super().reducer_override(obj)
        if not isinstance(reduced, tuple) or len(reduced) != 6 or not _known_classes():
            return reduced
        recipe, arguments, state, _, _, setter = reduced
        if getattr(setter, "__name__", "") != "_class_setstate":
            return reduced
        return make, (recipe, *arguments), (setter, state), None, None, fill


def dumps(value: object, protocol: int, buffer_callback: Callable[[Any], bool]) -> bytes:
    """As `cloudpickle.dumps`."""
    with io.BytesIO() as file:
        pickler = Pickler(file, protocol=protocol, buffer_callback=buffer_callback)
        if reducers := tensors.reducers():
            pickler.dispatch_table = ChainMap(reducers, Pickler.dispatch_table)
        pickler.dump(value)
        return file.getvalue()


def make(recipe: Callable[..., type], *arguments: Any) -> type:
    """The class of this recipe: the one that is here already, or an empty one."""
    known = _known_classes()
    with _lock:
        is_new = not any(isinstance(each, str) and each in known for each in arguments)
        made = recipe(*arguments)
        if is_new:
            _unfinished.add(made)
    return made


def fill(made: type, what: tuple[Callable[[type, Any], Any], Any]) -> None:
    """Gives a class its attributes, if it is not finished.

    Two threads that read the same class at the same time both do so: neither may use it before it is whole.
    """
    setter, state = what
    if made in _unfinished:
        setter(made, state)
        _unfinished.discard(made)


def _known_classes() -> Any:
    """Where cloudpickle keeps the classes it knows, by id; empty if a later version calls it otherwise."""
    return getattr(_private, "_DYNAMIC_CLASS_TRACKER_BY_ID", {})
