# PYTHON_ARGCOMPLETE_OK
"""`launchpad`, or `python -m launchpad`: run programs, and look at them from another terminal.

The commands are in `launchpad.cli`. Exit codes: 0 it is done · 1 it could not be done, with the reason on
stderr · 2 the command line is wrong · 130 interrupted by Ctrl-C; of `run`, those of the script.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import sys
from collections.abc import Sequence

from launchpad.cli import (
    attach,
    completion,
    doctor,
    graph,
    logs,
    metrics,
    plan,
    ps,
    restart,
    run,
    stacks,
    stop,
    top,
    trace,
    view,
)
from launchpad.cli.runs import CommandError
from launchpad.courier import formatting
from launchpad.errors import DefinitionError, LaunchError

_RUN = (
    "RUN is a program's name, the id of a run or its beginning, or a pid; if only one program runs, it may be"
    " left out."
)


def console() -> int:
    """The command `launchpad`; it imports what `python -m launchpad` would."""
    if not sys.flags.safe_path:
        with contextlib.suppress(FileNotFoundError):  # the directory that this runs in was removed
            sys.path[0] = os.getcwd()  # it was where the command is
    return main(sys.argv[1:], "launchpad")


def main(arguments: Sequence[str], prog: str = "python -m launchpad") -> int:
    """Reads the command line, and runs one command; its exit code."""
    parser = argparse.ArgumentParser(
        prog=prog,
        description="Runs programs, and looks at those of this user on this machine or on a cluster.",
        epilog=_RUN,
    )
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    for module in (
        ps,
        logs,
        stop,
        restart,
        stacks,
        attach,
        top,
        view,
        metrics,
        trace,
        run,
        plan,
        graph,
        doctor,
    ):
        summary = (module.__doc__ or "").split("\n")[0]
        epilog = "" if module in (run, plan, doctor) else _RUN
        name = module.__name__.rpartition(".")[2]
        command = commands.add_parser(name, help=summary, description=summary, epilog=epilog)
        command.usage = getattr(module, "USAGE", None)
        for flags, argument in module.ARGUMENTS.items():
            command.add_argument(*flags.split(), **argument)
        command.set_defaults(command=module.run)
    if "_ARGCOMPLETE" in os.environ:
        completion.complete(parser)
    # What follows `--` are the flags of the program.
    has_flags = arguments[:1] in (["plan"], ["run"], ["graph"]) and "--" in arguments
    end = arguments.index("--") if has_flags else len(arguments)
    options = parser.parse_args(arguments[:end])
    options.flags = arguments[end + 1 :]
    try:
        options.command(options)
        sys.stdout.flush()
    except (CommandError, DefinitionError, LaunchError) as error:
        lines = f"launchpad: {error}".split("\n")
        print(*map(formatting.coloured, lines), sep="\n", file=sys.stderr)
        return 1
    except BrokenPipeError:  # `… | head` has ended
        with contextlib.suppress(OSError):  # nothing more is printed
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except KeyboardInterrupt:
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
