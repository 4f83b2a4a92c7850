"""`python -m launchpad`: look at running programs from another terminal. The commands are in `launchpad.cli`.

Exit codes: 0 it is done · 1 it could not be done, with the reason on stderr · 2 the command line is wrong ·
130 interrupted by Ctrl-C.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import sys
from collections.abc import Sequence

from launchpad.cli import logs, plan, ps, stacks, stop, trace
from launchpad.cli.runs import CommandError
from launchpad.errors import DefinitionError, LaunchError

_RUN = (
    "RUN is a program's name, the id of a run or its beginning, or a pid; if only one program runs, it may be"
    " left out."
)


def main(arguments: Sequence[str]) -> int:
    """Reads the command line, and runs one command; its exit code."""
    parser = argparse.ArgumentParser(
        prog="python -m launchpad",
        description="Looks at the programs of this user that run on this machine, or on a cluster.",
        epilog=_RUN,
    )
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    for module in (ps, logs, stop, stacks, trace, plan):
        summary = (module.__doc__ or "").split("\n")[0]
        epilog = "" if module is plan else _RUN
        name = module.__name__.rpartition(".")[2]
        command = commands.add_parser(name, help=summary, description=summary, epilog=epilog)
        command.usage = plan.USAGE if module is plan else None
        for flags, argument in module.ARGUMENTS.items():
            command.add_argument(*flags.split(), **argument)
        command.set_defaults(command=module.run)
    # What follows `--` are the flags of the program, which `plan` passes on.
    is_plan = arguments[:1] == ["plan"] and "--" in arguments
    end = arguments.index("--") if is_plan else len(arguments)
    options = parser.parse_args(arguments[:end])
    options.flags = arguments[end + 1 :]
    try:
        options.command(options)
        sys.stdout.flush()
    except (CommandError, DefinitionError, LaunchError) as error:
        print(f"launchpad: {error}", file=sys.stderr)
        return 1
    except BrokenPipeError:  # `… | head` has ended
        with contextlib.suppress(OSError):  # nothing more is printed
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except KeyboardInterrupt:
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
