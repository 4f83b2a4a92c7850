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
    """An argument parser with `--json`, and with an option for each keyword argument.

    An option has the type of its default. If that is a list, the option takes several values, separated by
    spaces or commas. If it is False, the option is a flag.

    Args:
        doc: The docstring of the script, which `--help` prints.
        quick: The values of options that `--quick` sets, so that the script only proves that it runs.
        defaults: The options, and their default values.
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
        """Return the options. In a process that `processes.apart` started, run the function, and exit."""
        if sys.argv[1:2] == [APART]:
            _run_apart()
        options = super().parse_args(args, namespace)
        if self._quick is not None and options.quick:
            vars(options).update(self._quick)
        return options


class _Several(argparse.Action):
    """An action for values separated by commas or spaces, each of the type of the default's items."""

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
    """Write the results as JSON, with a description of the machine."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({"machine": machine.describe(), **results}, indent=1) + "\n")


def finish(options: Any, results: Mapping[str, Any], faults: list[str] | None = None) -> NoReturn:
    """Print the faults, write the report if `--json` is given, and exit: with 1 if there are faults."""
    for fault in faults or ():
        print(f"FAILED: {fault}")
    if options.json:
        write_report(options.json, results)
    raise SystemExit(1 if faults else 0)
