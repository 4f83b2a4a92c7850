"""Subcommand: a command of `launchpad`, made from a function and its arguments on the command line."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from dataclasses import dataclass
from operator import methodcaller
from typing import Any

Argument = Callable[[argparse.ArgumentParser], object]
"""A function that adds an argument to a parser."""


class CommandError(Exception):
    """A command failed. The text says why, and what to do."""


@dataclass(frozen=True)
class Subcommand:
    """A command. It has the name of its function.

    Attributes:
        run: The function. `--help` shows the first line of its docstring.
        usage: The usage line, for a command that takes a program's flags after `--`. None for others.
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
    """Return an argument. The parameters are those of `ArgumentParser.add_argument`."""
    return methodcaller("add_argument", *flags, **options)


def run_argument(text: str = "which") -> Argument:
    """Return the optional argument that names a run."""
    return argument("run", metavar="RUN", nargs="?", help=text)


WORKER = argument("worker", metavar="WORKER", help="one worker, such as actor-3")
