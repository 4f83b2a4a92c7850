"""Run a script or a module, as python does; or launch a program that it defines."""

from __future__ import annotations

import argparse
import os
import sys
from typing import NoReturn

from launchpad.cli import programs
from launchpad.cli.runs import CommandError
from launchpad.launch.launch import launch
from launchpad.launch.planning import interpreter

USAGE = "%(prog)s FILE.py|MODULE[:NAME] [--launch_type TYPE] [-- FLAG …]"
ARGUMENTS = {
    "program": {
        "metavar": "FILE.py|MODULE[:NAME]",
        "help": "a script, train.py or examples.hello_world, which launches by itself; or, with a NAME, a"
        " program or a function that makes one: train.py:make_program",
    },
    "--launch_type": {"help": "as LP_LAUNCH_TYPE: how what names no launch type itself is run"},
}


def run(options: argparse.Namespace) -> None:
    """Becomes the script's interpreter; or launches, and leaves the rest to the end of this script."""
    where, name = programs.split(options.program)
    if options.launch_type:
        os.environ["LP_LAUNCH_TYPE"] = options.launch_type
    if not name:
        _become_python(where, options.flags)
    sys.argv[:] = [where, *options.flags]
    module, program = programs.find(options.program, options.flags, up_to_launch=False)
    # The modules beside the script are sent along to a cluster: this says which script it is.
    main = sys.modules["__main__"]
    main.__file__ = module.__file__
    main.__spec__ = None if where.endswith(".py") else module.__spec__
    launch(program)


def _become_python(where: str, flags: list[str]) -> NoReturn:
    is_file = where.endswith(".py") or os.sep in where
    if is_file and not os.path.exists(where):
        raise CommandError(f"there is no file {where!r}")
    script = [where] if is_file else ["-m", where]
    os.execv(sys.executable, [sys.executable, *interpreter.flags_here(), *script, *flags])
