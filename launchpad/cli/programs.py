"""The program that MODULE:NAME or FILE.py:NAME names on a command line: itself, or what a function makes."""

from __future__ import annotations

import contextlib
import importlib.util
import os
import sys
from collections.abc import Iterator, Sequence
from types import ModuleType
from typing import Any

from absl import flags

import launchpad
from launchpad.cli.runs import CommandError
from launchpad.program import Program


class _LaunchCalled(BaseException):
    """What is only to be imported, or to make a program, calls `lp.launch`."""


def find(named: str, given: Sequence[str], *, up_to_launch: bool) -> tuple[ModuleType, Program]:
    """Imports the module, parses the flags, makes the program; nothing that it calls launches anything.

    Args:
        named: `where:name`; without a name it is `make_program`.
        given: Flags of the program.
        up_to_launch: Whether a module that launches when it is imported is read as far as that; else it is
            refused, since workers that are processes import it as well.

    Raises:
        CommandError: there is no such module, program or flag.
    """
    where, name = split(named)
    with _no_launches():
        try:
            module, launches = _imported(where)
            if launches and not up_to_launch:
                raise CommandError(
                    f"{where} launches a program when it is imported: run it without `:{name}`, or let it"
                    " launch under `if __name__ == '__main__':`"
                )
            program = getattr(module, name or "make_program")
        except (ImportError, AttributeError, ValueError, OSError) as error:
            raise CommandError(f"there is no {named!r} to import from here: {error}") from error
        try:
            _, *unused = flags.FLAGS([sys.argv[0], *given])
        except flags.Error as error:
            raise CommandError(f"flags of the program: {error}") from error
        if unused:
            raise CommandError(f"flags of the program: {unused[0]!r} is none")
        try:
            if not isinstance(program, Program) and callable(program):
                program = program()
        except _LaunchCalled:
            raise CommandError(
                f"{named} launches a program, where it should return one: name a function"
                " that makes the program, or the program itself"
            ) from None
    if not isinstance(program, Program):
        raise CommandError(f"{named} gives a {type(program).__name__}, and no lp.Program")
    return module, program


def split(named: str) -> tuple[str, str]:
    """The module or file, and the name in it, which may be empty."""
    where, colon, name = named.rpartition(":")
    return (where, name) if colon else (named, "")


def _imported(where: str) -> tuple[ModuleType, bool]:
    """A module by its name or its file, read to its end or to its launch; whether it launches."""
    name = where
    if where.endswith(".py"):
        path = os.path.abspath(where)
        directory, file = os.path.split(path)
        sys.path.insert(0, directory)  # as `python FILE.py` does
        name = file.removesuffix(".py")
        spec = importlib.util.spec_from_file_location(name, path)
    elif not where:
        raise ValueError("Empty module name")
    else:
        spec = importlib.util.find_spec(where)
        if where in sys.modules:
            return sys.modules[where], False
    if spec is None or spec.loader is None:
        raise ModuleNotFoundError(f"No module named {where!r}")
    module = sys.modules[name] = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    except _LaunchCalled:  # all that it launches is there
        return module, True
    return module, False


@contextlib.contextmanager
def _no_launches() -> Iterator[None]:
    """Until its end `lp.launch`, and so `lp.run`, raises _LaunchCalled."""
    ends = False

    def launch(*args: Any, **kwargs: Any) -> Any:
        if ends:  # a module has it under a name of its own
            return real(*args, **kwargs)
        raise _LaunchCalled

    real = launchpad.launch
    places: list[Any] = [launchpad, sys.modules[real.__module__]]
    for place in places:
        place.launch = launch
    try:
        yield
    finally:
        ends = True
        for place in places:
            place.launch = real
