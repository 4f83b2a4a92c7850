"""Print what a launch would run, without starting anything; for Kubernetes the manifests."""

from __future__ import annotations

import argparse
import importlib
import sys
from collections.abc import Sequence
from typing import Any

from absl import flags

from launchpad.cli.runs import CommandError
from launchpad.errors import DefinitionError, LaunchError
from launchpad.launch.launch import plan
from launchpad.program import Program


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """`plan MODULE:NAME [--launch_type TYPE] [--image IMAGE] [-- FLAG …]`."""
    parser.usage = "%(prog)s MODULE:NAME [--launch_type TYPE] [--image IMAGE] [-- FLAG …]"
    parser.add_argument(
        "program",
        metavar="MODULE:NAME",
        help="a program, or a function that makes one: examples.hello_world.program:make_program",
    )
    parser.add_argument("--launch_type", help="as lp.launch takes it; else what the flags say")
    parser.add_argument("--image", help="for kubernetes: what the containers run")


def run(options: argparse.Namespace) -> None:
    """Imports, makes, plans, prints."""
    given = {"image": options.image} if options.image else {}
    made = _named(options.program)
    _parse(options.flags)
    try:
        print(plan(_program(options.program, made), options.launch_type, **given).shown())
    except (DefinitionError, LaunchError) as error:
        raise CommandError(str(error)) from error


def _named(text: str) -> Any:
    module, _, name = text.partition(":")
    try:
        return getattr(importlib.import_module(module), name or "make_program")
    except (ImportError, AttributeError, ValueError) as error:
        raise CommandError(f"there is no {text!r} to import from here: {error}") from error


def _parse(given: Sequence[str]) -> None:
    try:
        _, *unused = flags.FLAGS([sys.argv[0], *given])
    except flags.Error as error:
        raise CommandError(f"flags of the program: {error}") from error
    if unused:
        raise CommandError(f"flags of the program: {unused[0]!r} is none")


def _program(name: str, made: Any) -> Program:
    program = made() if not isinstance(made, Program) and callable(made) else made
    if not isinstance(program, Program):
        raise CommandError(f"{name} gives a {type(program).__name__}, and no lp.Program")
    return program
