"""A command of `launchpad`: a function with the arguments that it takes on a command line."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from dataclasses import dataclass
from operator import methodcaller
from typing import Any

Argument = Callable[[argparse.ArgumentParser], object]
"""Adds an argument to a parser."""


class CommandError(Exception):
    """A command failed; the text gives the reason, and what to do."""


@dataclass(frozen=True)
class Subcommand:
    """A command, which has the name of its function.

    Attributes:
        run: The function; the first line of its docstring is shown by `--help`.
        usage: Only of a command that takes flags of a program, behind `--`.
    """

    run: Callable[[argparse.Namespace], None]
    arguments: tuple[Argument, ...]
    usage: str | None

    @property
    def summary(self) -> str:
        return (self.run.__doc__ or "").partition("\n")[0]


def command(
    *arguments: Argument, usage: str | None = None
) -> Callable[[Callable[[argparse.Namespace], None]], Subcommand]:
    """Make a command of the function that follows."""
    return lambda function: Subcommand(function, arguments, usage)


def argument(*flags: str, **options: Any) -> Argument:
    """Return an argument, which is described as for `ArgumentParser.add_argument`."""
    return methodcaller("add_argument", *flags, **options)


def run_argument(text: str = "which") -> Argument:
    """Return the argument that names a run; it may be left out."""
    return argument("run", metavar="RUN", nargs="?", help=text)


WORKER = argument("worker", metavar="WORKER", help="one worker, such as actor-3")
