"""The parser of the command line, and the table of commands. It imports only the module of the given command.

Exit codes: 0 done · 1 failed, with the reason on stderr · 2 wrong command line · 130 interrupted by Ctrl-C.
The exit code of `run` is the script's.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib
import os
import sys
from collections.abc import Sequence
from typing import Any, cast

from launchpad.cli.command import CommandError, Subcommand
from launchpad.courier import formatting
from launchpad.errors import DefinitionError, LaunchError

_MODULES = {
    "ps": "watching",
    "logs": "records",
    "stop": "control",
    "restart": "control",
    "stacks": "watching",
    "attach": "attach",
    "top": "watching",
    "view": "watching",
    "metrics": "watching",
    "trace": "records",
    "run": "programs",
    "plan": "programs",
    "graph": "programs",
    "doctor": "doctor",
}
"""Maps each command to the module that defines it, in the order of `--help`."""

_RUN = (
    "RUN is a program's name, the id of a run or its beginning, or a pid; if only one program runs, it may be"
    " left out."
)
_WITHOUT_RUN = ("run", "plan", "doctor")
_NAMES = ("run", "label", "worker", "drawn")
"""The arguments that are names of runs, groups and workers."""


def console() -> int:
    """Run the command `launchpad`. It imports modules from the same places as `python -m launchpad`."""
    if not sys.flags.safe_path:
        # Replace the first entry, which is the command's own directory. The current directory may have been
        # removed.
        with contextlib.suppress(FileNotFoundError):
            sys.path[0] = os.getcwd()
    return main(sys.argv[1:], "launchpad")


def main(arguments: Sequence[str], prog: str = "python -m launchpad") -> int:
    """Read the command line, run one command, and return its exit code."""
    command_name = arguments[0] if arguments else ""
    commands = {
        name: _command(name)
        for name in _MODULES
        if name == command_name or command_name not in _MODULES
    }
    parser = _parser(commands, prog)
    if "_ARGCOMPLETE" in os.environ:
        _complete(parser)
    # The arguments after `--` are flags of the program.
    has_flags = (
        command_name in commands and commands[command_name].usage is not None and "--" in arguments
    )
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
    except BrokenPipeError:
        # The process that reads the output, such as `head`, has ended. Print nothing more.
        with contextlib.suppress(OSError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except KeyboardInterrupt:
        return 130
    return 0


def _command(name: str) -> Subcommand:
    subcommand: Subcommand = getattr(
        importlib.import_module(f"launchpad.cli.{_MODULES[name]}"), name
    )
    return subcommand


def _parser(commands: dict[str, Subcommand], prog: str) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog=prog,
        description="Runs programs, and looks at those of this user on this machine or on a cluster.",
        epilog=_RUN,
    )
    parsers = parser.add_subparsers(required=True, metavar="COMMAND")
    for name, command in commands.items():
        summary = command.summary
        epilog = "" if name in _WITHOUT_RUN else _RUN
        of_command = parsers.add_parser(name, help=summary, description=summary, epilog=epilog)
        of_command.usage = command.usage
        for add_argument in command.arguments:
            add_argument(of_command)
        of_command.set_defaults(command=command.run)
    return parser


def _complete(parser: argparse.ArgumentParser) -> None:
    """Print completions for the word at the cursor, and exit. If argcomplete is not installed, just return.

    To complete a word, the shell runs `launchpad` with $_ARGCOMPLETE set. A static script, as shtab writes
    it, would not know the names of runs.
    """
    with contextlib.suppress(ImportError):
        import argcomplete

        argcomplete.autocomplete(parser, default_completer=cast("Any", _completions))


def _completions(
    *, prefix: str, action: argparse.Action, parsed_args: argparse.Namespace, **_: Any
) -> list[str]:
    """Return the possible values of an argument.

    Consider only the runs on this machine, because a cluster takes too long to answer.
    """
    if action.dest not in _NAMES:
        from argcomplete.completers import FilesCompleter

        return list(FilesCompleter()(prefix))
    from launchpad.cli import runs
    from launchpad.launch.rundir import record

    # If RUN may be left out, argparse does not know yet which argument the first word is.
    words = [word for word in (getattr(parsed_args, name, None) for name in _NAMES) if word]
    try:
        running = record.running()
        named_runs = [run for word in words for run in runs.matching(running, word)]
        # This is the command `logs`, and runs that have ended have logs, too.
        if words and not named_runs and hasattr(parsed_args, "follow"):
            named_runs = [run for word in words for run in runs.matching(record.ended(), word)][-1:]
    except LaunchError:
        return []
    names: list[str] = []
    if not named_runs:
        names += [name for run in running for name in (run.program, run.run_id)]
    chosen_runs = named_runs or running
    if action.dest != "drawn" and len(chosen_runs) == 1:
        names += chosen_runs[0].workers
        if not hasattr(parsed_args, "worker"):
            names += chosen_runs[0].workers.values()
    return list(dict.fromkeys(names))
