"""Print what a launch would run, without starting anything; for Kubernetes the manifests."""

from __future__ import annotations

import argparse
import importlib
import sys

from absl import flags

from launchpad.cli.runs import CommandError
from launchpad.errors import DefinitionError, LaunchError
from launchpad.launch.launch import plan
from launchpad.program import Program

USAGE = "%(prog)s MODULE:NAME [--launch_type TYPE] [--image IMAGE] [-- FLAG …]"
ARGUMENTS = {
    "program": {
        "metavar": "MODULE:NAME",
        "help": "a program, or a function that makes one: examples.hello_world.program:make_program",
    },
    "--launch_type": {"help": "as for lp.launch; else from the flags"},
    "--image": {"help": "for kubernetes: what the containers run"},
}


def run(options: argparse.Namespace) -> None:
    """Imports, makes, plans, prints."""
    given = {"image": options.image} if options.image else {}
    module, _, name = options.program.partition(":")
    try:
        program = getattr(importlib.import_module(module), name or "make_program")
    except (ImportError, AttributeError, ValueError) as error:
        raise CommandError(
            f"there is no {options.program!r} to import from here: {error}"
        ) from error
    try:
        _, *unused = flags.FLAGS([sys.argv[0], *options.flags])
    except flags.Error as error:
        raise CommandError(f"flags of the program: {error}") from error
    if unused:
        raise CommandError(f"flags of the program: {unused[0]!r} is none")
    try:
        if not isinstance(program, Program) and callable(program):
            program = program()
        if not isinstance(program, Program):
            what = f"a {type(program).__name__}, and no lp.Program"
            raise CommandError(f"{options.program} gives {what}")
        print(plan(program, options.launch_type, **given).shown())
    except (DefinitionError, LaunchError) as error:
        raise CommandError(str(error)) from error
