"""Print what a launch would run, without starting anything; for Kubernetes the manifests."""

from __future__ import annotations

import argparse
import importlib
import sys
from typing import Any

from absl import flags

from launchpad.cli.runs import CommandError
from launchpad.errors import DefinitionError, LaunchError
from launchpad.launch.launch import plan
from launchpad.program import Program


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """`plan MODULE:NAME [--launch_type TYPE] [--image IMAGE] [-- FLAGS]`."""
    parser.add_argument(
        "program",
        metavar="MODULE:NAME",
        help="a program, or a function that makes one: examples.hello_world.program:make_program",
    )
    parser.add_argument("--launch_type", default="local_mp", help="as lp.launch takes it")
    parser.add_argument("--image", help="for kubernetes: what the containers run")
    parser.add_argument(
        "flags", metavar="FLAG", nargs="*", help="after `--`: the program's own flags"
    )


def run(options: argparse.Namespace) -> None:
    """Imports, makes, plans, prints."""
    given = {"image": options.image} if options.image else {}
    try:
        print(plan(_program(options), options.launch_type, **given).shown())
    except (DefinitionError, LaunchError) as error:
        raise CommandError(str(error)) from error


def _program(options: argparse.Namespace) -> Program:
    made = _named(options.program)
    if not isinstance(made, Program) and callable(made):
        _parse(options.flags)
        made = made()
    if not isinstance(made, Program):
        raise CommandError(f"{options.program} gives a {type(made).__name__}, and no lp.Program")
    return made


def _named(text: str) -> Any:
    module, _, name = text.partition(":")
    try:
        return getattr(importlib.import_module(module), name or "make_program")
    except (ImportError, AttributeError) as error:
        raise CommandError(f"there is no {text!r} to import from here: {error}") from error


def _parse(given: list[str]) -> None:
    try:
        flags.FLAGS([sys.argv[0], *given])
    except flags.Error as error:
        raise CommandError(f"flags of the program: {error}") from error
