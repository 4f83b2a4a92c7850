"""Print what a launch would run, without starting anything; for Kubernetes the manifests.

A module or a file that launches when it is imported is read as far as that, as is any
script whose last line is `lp.launch(program)`.
"""

from __future__ import annotations

import argparse

from launchpad.cli import programs
from launchpad.launch.launch import plan

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


def run(options: argparse.Namespace) -> None:
    """Imports, makes, plans, prints."""
    given = {"image": options.image} if options.image else {}
    _, program = programs.find(options.program, options.flags, up_to_launch=True)
    print(plan(program, options.launch_type, **given).shown())
