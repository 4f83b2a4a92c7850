"""Print what a launch would run, without starting anything; for Kubernetes the manifests.

A module or a file that launches when it is imported is read as far as that, as is any
script whose last line is `lp.launch(program)`.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib.util
import os
import sys
from collections.abc import Iterator, Sequence
from types import ModuleType
from typing import Any, NoReturn

from absl import flags

import launchpad
from launchpad.cli.runs import CommandError
from launchpad.launch.launch import plan
from launchpad.program import Program

USAGE = "%(prog)s MODULE:NAME|FILE.py:NAME [--launch_type TYPE] [--image IMAGE] [-- FLAG …]"
ARGUMENTS = {
    "program": {
        "metavar": "MODULE:NAME",
        "help": "a program, or a function that makes one: examples.hello_world.program:make_program,"
        " or with a file, train.py:make_program",
    },
    "--launch_type": {"help": "as for lp.launch; else from the flags"},
    "--image": {"help": "for kubernetes: what the containers run"},
}


class _LaunchCalled(BaseException):
    """What is planned calls `lp.launch`."""


def run(options: argparse.Namespace) -> None:
    """Imports, makes, plans, prints."""
    given = {"image": options.image} if options.image else {}
    program = program_of(options.program, options.flags)
    print(plan(program, options.launch_type, **given).shown())


def program_of(named: str, given_flags: Sequence[str]) -> Program:
    """The program that `MODULE:NAME` or `FILE.py:NAME` is or makes, with these flags of its own.

    Raises:
        CommandError: it is none, or launches one.
    """
    where, _, name = named.rpartition(":")
    where, name = (where, name) if ":" in named else (named, "")
    with _launches_nothing():
        try:
            program = getattr(_imported(where), name or "make_program")
        except (ImportError, AttributeError, ValueError, OSError) as error:
            raise CommandError(f"there is no {named!r} to import from here: {error}") from error
        try:
            _, *unused = flags.FLAGS([sys.argv[0], *given_flags])
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
        return program


def _imported(where: str) -> ModuleType:
    """A module by its name or its file, read to its end or to its launch."""
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
            return sys.modules[where]
    if spec is None or spec.loader is None:
        raise ModuleNotFoundError(f"No module named {where!r}")
    module = sys.modules[name] = importlib.util.module_from_spec(spec)
    with contextlib.suppress(_LaunchCalled):  # all that it launches is there
        spec.loader.exec_module(module)
    return module


@contextlib.contextmanager
def _launches_nothing() -> Iterator[None]:
    def launch(*_: Any, **__: Any) -> NoReturn:
        raise _LaunchCalled

    before, launchpad.launch = launchpad.launch, launch
    try:
        yield
    finally:
        launchpad.launch = before
