"""Random numbers of workers: each worker draws its own numbers, which are the same at every launch.

A generator that a script imports by name, or makes at its top level, would be copied into each worker with
its state, and all replicas would draw the same numbers. Instead:

    from random import random           a method of the module's own generator: each worker uses its own
    from numpy.random import rand
    rng = numpy.random.default_rng()    a global variable of the script: each worker makes a new generator

A process seeds both kinds of generators from the worker's seed and its attempt. Threads share the script's
generators. A generator that is passed to a node as an argument stays as it is, because the user wants exactly
that generator. Functions that a pool sends to its workers are treated like those of a node.
"""

from __future__ import annotations

import hashlib
import os
import random
import sys
from collections.abc import Iterable
from types import ModuleType
from typing import Any

from launchpad.courier import fork
from launchpad.courier.codec import by_value, module_generators
from launchpad.courier.interruptions import Lock
from launchpad.runtime import context, import_hook

#: Module → the name of its function that seeds the module's own generator.
_SEED_FUNCTIONS = {"random": "seed", "numpy.random": "seed", "torch": "manual_seed"}

Key = tuple[bytes, int, int]
"""An interpreter's random id, the pid of its process or of a fork of it, the id of an object."""

_interpreter = os.urandom(16)

_sent: dict[Key, Any] = {}
"""The generators that this process has sent, kept so that no other object gets their ids."""

_made: dict[tuple[Any, ...], Any] = {}
"""Name and kind → the generator that this process, which runs one worker, made to replace the script's."""

# Held to make a generator: two slots of a pool's worker may unpickle functions at the same time, and must
# get the same generator.
_lock = fork.free_in_child(Lock())


def seed_modules() -> None:
    """Seed the generators of modules, also of those that this process imports later."""

    def seed(module: ModuleType) -> None:
        getattr(module, _SEED_FUNCTIONS[module.__name__])(_seed_for(module.__name__))

    for name in _SEED_FUNCTIONS:
        import_hook.when_imported(name, seed)


class ScriptGenerator:
    """A placeholder for a generator among the script's globals, from which a worker makes its own."""

    def __init__(
        self,
        name: str,
        value: Any,
        kind: str,
        bit_generator: type | None = None,
        device: str = "",
    ) -> None:
        self.name = name
        self._value = value
        self._kind = kind
        self._bit_generator = bit_generator
        self._device = device

    def __reduce__(self) -> tuple[Any, ...]:
        key = _key_of(self._value)
        _sent[key] = self._value
        return made, (key, self.name, self._kind, self._bit_generator, self._device)


def _key_of(value: object) -> Key:
    return _interpreter, os.getpid(), id(value)


def without_generators(reduced: Any, placeholders: dict[int, ScriptGenerator]) -> Any:
    """Replace the generators among the global variables of a pickled function with placeholders.

    Args:
        reduced: The result of `by_value.Pickler.reducer_override`. It is returned unchanged unless it is for
            a function of the script.
        placeholders: Id of a generator → its placeholder. New ones are added.
    """
    if not isinstance(reduced, tuple) or reduced[0] is not by_value.make_function:
        return reduced
    make, arguments, (setter, (attributes, slots), is_named), *other_fields = reduced
    variables = dict(slots["__globals__"])
    for name, value in variables.items():
        placeholder = placeholders.get(id(value)) or of_script(name, value)
        if placeholder is not None:
            variables[name] = placeholders[id(value)] = placeholder
    state = setter, (attributes, {**slots, "__globals__": variables}), is_named
    return make, arguments, state, *other_fields


def of_script(name: str, value: Any) -> ScriptGenerator | None:
    """Return a placeholder if the value is a generator of the script's own, else None."""
    if module_generators.is_kept(value):
        return None
    if type(value) is random.Random:
        return ScriptGenerator(name, value, "random.Random")
    numpy: Any = sys.modules.get("numpy")
    if numpy is not None and type(value) is numpy.random.Generator:
        return ScriptGenerator(name, value, "numpy.random.Generator", type(value.bit_generator))
    if numpy is not None and type(value) is numpy.random.RandomState:
        return ScriptGenerator(name, value, "numpy.random.RandomState")
    torch: Any = sys.modules.get("torch")
    if torch is not None and type(value) is torch.Generator:
        return ScriptGenerator(name, value, "torch.Generator", device=str(value.device))
    return None


def made(key: Key, name: str, kind: str, bit_generator: Any, device: str) -> Any:
    """Return this worker's substitute for the script's generator; in a thread of the script, the original."""
    if key in _sent:
        return _sent[key]
    with _lock:
        identity = name, kind, bit_generator, device
        if identity not in _made:
            _made[identity] = _new(kind, _seed_for(name), bit_generator, device)
            me = context.try_current()
            # In the import phase, the launch has printed this note already.
            if me is not None and me.link.phase != "import":
                print(note([name]), file=sys.stderr)
        return _made[identity]


def _new(kind: str, seed: int, bit_generator: Any, device: str) -> Any:
    if kind == "random.Random":
        return random.Random(seed)
    if kind == "torch.Generator":
        import torch

        return torch.Generator(device).manual_seed(seed)
    import numpy

    if kind == "numpy.random.RandomState":
        return numpy.random.RandomState(seed)
    return numpy.random.Generator(bit_generator(seed))


def note(names: Iterable[str]) -> str:
    """Return the note to print once about the script's generators of these names; empty for none."""
    listed = ", ".join(dict.fromkeys(names))
    if not listed:
        return ""
    return (
        f"random numbers: instead of {listed} of the script each worker has a generator of its own, seeded"
        " from lp.current().seed: else all replicas would draw the same numbers. A generator that is passed"
        " to a node as an argument stays as it is."
    )


def _seed_for(name: str) -> int:
    """Return a seed below 2**32 for this worker, attempt and generator's name; random outside workers."""
    me = context.try_current()
    if me is None:
        return int.from_bytes(os.urandom(4), "big")
    digest = hashlib.sha256(f"{me.seed}/{me.attempt}/{name}".encode()).digest()
    return int.from_bytes(digest[:4], "big")
