"""The command line of a benchmark, and its end: the report as JSON, and the exit status."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NoReturn

from benchmarks.harness import machine

APART = "--apart"


class Parser(argparse.ArgumentParser):
    """A parser with `--json`, and with an option for each keyword.

    An option has the type of its default: of a list, it takes several values, with spaces or commas between
    them, and False makes a flag of it.

    Args:
        doc: The docstring of the script, which `--help` prints.
        quick: What `--quick` sets the options to. Then the script only proves that it runs.
        defaults: The options.
    """

    def __init__(
        self, doc: str | None, quick: Mapping[str, Any] | None = None, **defaults: Any
    ) -> None:
        super().__init__(description=doc, formatter_class=argparse.RawTextHelpFormatter)
        self._quick = quick
        for name, default in defaults.items():
            self._add_option(name, default)
        self.add_argument("--json", type=Path, metavar="FILE", help="also write the report there")
        if quick is not None:
            self.add_argument("--quick", action="store_true", help="soon over; to see that it runs")

    def _add_option(self, name: str, default: Any) -> None:
        flags = dict.fromkeys([f"--{name.replace('_', '-')}", f"--{name}"])
        if default is False:
            self.add_argument(*flags, dest=name, action="store_true")
        elif isinstance(default, list):
            self.add_argument(*flags, dest=name, action=_Several, nargs="*", default=default)
        else:
            kind = str if default is None else type(default)
            explanation = "" if default is None else f"by default {default}"
            self.add_argument(*flags, dest=name, type=kind, default=default, help=explanation)

    def parse_args(self, args: Any = None, namespace: Any = None) -> Any:
        """Return the options. In a process of `processes.apart`, run what it is for, and exit."""
        if sys.argv[1:2] == [APART]:
            _run_apart()
        options = super().parse_args(args, namespace)
        if self._quick is not None and options.quick:
            vars(options).update(self._quick)
        return options


class _Several(argparse.Action):
    """Values with commas or spaces between them, of the type of the default's."""

    def __call__(self, parser: Any, namespace: Any, values: Any, flag: Any = None) -> None:
        kind = type(self.default[0])
        texts = [text for value in values for text in value.split(",")]
        setattr(namespace, self.dest, [kind(text) for text in texts])


def _run_apart() -> NoReturn:
    """Run a function of this script, and print its result as the last line."""
    name, args = json.loads(sys.argv[2])
    result = getattr(sys.modules["__main__"], name)(*args)
    print(json.dumps(result), flush=True)
    raise SystemExit


def write_report(path: Path, results: Mapping[str, Any]) -> None:
    """Write what was found, beside where, when and with what it was."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({"machine": machine.describe(), **results}, indent=1) + "\n")


def finish(options: Any, results: Mapping[str, Any], faults: list[str] | None = None) -> NoReturn:
    """Print what is not as it should be, write the report if one is wanted, and exit."""
    for fault in faults or ():
        print(f"FAILED: {fault}")
    if options.json:
        write_report(options.json, results)
    raise SystemExit(1 if faults else 0)
