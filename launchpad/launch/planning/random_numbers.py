"""Random numbers of workers: each draws its own, and the same ones at every launch.

What a script imports by name, or makes at its top, would be copied into each worker with its state, and all
replicas would draw the same numbers:

    from random import random           a method of a generator that its module keeps: a worker has its own
    from numpy.random import rand
    rng = numpy.random.default_rng()    a generator among the script's global variables: made anew in a worker

A process seeds both from the worker's seed and its attempt; in threads the script's generators are shared.
An argument of a node stays as it is: who passes a generator wants that one.
"""

from __future__ import annotations

import hashlib
import random
import sys
from collections.abc import Iterable
from types import ModuleType
from typing import Any

from launchpad import context, import_hook
from launchpad.courier.codec import module_generators

#: Module → the name of the function in it that seeds the generator which it keeps for all.
_SEED_FUNCTIONS = {"random": "seed", "numpy.random": "seed", "torch": "manual_seed"}

_made: dict[str, Any] = {}
"""By name: what this process, which runs one worker, has made in the place of the script's generators."""


def seed_modules() -> None:
    """Seeds the generators of modules, also of those that this process imports later."""

    def seed(module: ModuleType) -> None:
        getattr(module, _SEED_FUNCTIONS[module.__name__])(_seed_for(module.__name__))

    for name in _SEED_FUNCTIONS:
        import_hook.when_imported(name, seed)


class ScriptGenerator:
    """Stands for a generator among the script's global variables; a worker makes its own of it."""

    def __init__(
        self, name: str, kind: str, bit_generator: type | None = None, device: str = ""
    ) -> None:
        self.name = name
        self._kind = kind
        self._bit_generator = bit_generator
        self._device = device

    def __reduce__(self) -> tuple[Any, ...]:
        return made, (self.name, self._kind, self._bit_generator, self._device)


def of_script(name: str, value: Any) -> ScriptGenerator | None:
    """Returns what stands for this value of the script; None if it is no generator of the script's own."""
    if module_generators.is_kept(value):
        return None
    if type(value) is random.Random:
        return ScriptGenerator(name, "random.Random")
    numpy: Any = sys.modules.get("numpy")
    if numpy is not None and type(value) is numpy.random.Generator:
        return ScriptGenerator(name, "numpy.random.Generator", type(value.bit_generator))
    if numpy is not None and type(value) is numpy.random.RandomState:
        return ScriptGenerator(name, "numpy.random.RandomState")
    torch: Any = sys.modules.get("torch")
    if torch is not None and type(value) is torch.Generator:
        return ScriptGenerator(name, "torch.Generator", device=str(value.device))
    return None


def made(name: str, kind: str, bit_generator: Any, device: str) -> Any:
    """This worker's own generator, in the place of the script's."""
    if name not in _made:
        _made[name] = _new(kind, _seed_for(name), bit_generator, device)
    return _made[name]


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
    """Returns what is said once of the script's generators with these names; empty for none."""
    listed = ", ".join(dict.fromkeys(names))
    if not listed:
        return ""
    return (
        f"random numbers: in place of {listed} of the script each worker has a generator of its own, seeded"
        " from lp.current().seed: else all replicas would draw the same numbers. A generator that is passed"
        " to a node as an argument stays as it is."
    )


def _seed_for(name: str) -> int:
    """Below 2**32; depends on the worker, its attempt and the name of the generator."""
    me = context.current()
    digest = hashlib.sha256(f"{me.seed}/{me.attempt}/{name}".encode()).digest()
    return int.from_bytes(digest[:4], "big")
