"""Runs the example of a docstring, with the names that it takes for granted."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import launchpad as lp

DEADLINE_S = 60.0


class Example:
    """The code of an example, and a place to run it in.

    What it launches as threads or as processes is launched as threads, and has to end within a minute.
    """

    def __init__(self, code: str, folder: Path, patch: pytest.MonkeyPatch) -> None:
        self.code, self.folder, self.patch = code, folder, patch
        self.stack = contextlib.ExitStack()
        self.launched: list[lp.Running] = []
        self.printed: list[tuple[object, ...]] | None = None
        self._launch = lp.launch
        patch.chdir(folder)
        for module in (lp, sys.modules[lp.launch.__module__]):  # lp.run calls the latter's
            patch.setattr(module, "launch", self.launch)

    def run(self, /, **given: Any) -> dict[str, Any]:
        """Runs it here; returns the names that there are then. What it prints is in `printed`."""
        self.printed = []
        return run(self.code, {"print": self._print, **given})

    def _print(self, *values: object, **options: Any) -> None:
        print(*values, **options)
        assert self.printed is not None
        self.printed.append(values)

    def run_in_worker(self, /, **given: Any) -> str:
        """Runs it as the one worker of a program; returns what it has printed."""
        program = lp.Program("example")
        program.add_node(lp.PyNode(_run, self.code, given), label="worker")
        running = self.launch(program)
        running.wait(DEADLINE_S)
        return running.logs("worker")

    def launch(self, programs: Any, launch_type: Any = None, *args: Any, **options: Any) -> Any:
        """Launches a program as threads, until the example ends."""
        running = self._launch(programs, "test_mt", *args, **options)
        self.launched.append(running)
        self.stack.callback(_end, running)
        return running

    def run_to_end(self, /, **given: Any) -> dict[str, Any]:
        """Runs it here, and what it launches, or has added to `program`, to the end; each has to end well."""
        names = self.run(**given)
        if not self.launched:
            self.launch(names["program"])
        for running in self.launched:
            running.wait(DEADLINE_S)
        return names

    def run_and_stop(self, /, **given: Any) -> dict[str, Any]:
        """The same of a program that does not end by itself: it is stopped when all workers run."""
        names = self.run(**given)
        if not self.launched:
            self.launch(names["program"])
        for running in self.launched:
            running.stop_and_wait()
        return names

    def launch_processes(self, program: lp.Program) -> lp.Running:
        """Launches a program as processes, until the example ends."""
        running = self._launch(program, "test_mp")
        self.stack.callback(_end, running)
        return running

    def client(self, constructor: Callable[..., Any], *args: Any, **options: Any) -> Any:
        """A client of what this makes, which a program of its own serves."""
        program = lp.Program("example")
        program.add_node(lp.CourierNode(constructor, *args, **options), label="server")
        return self.launch(program).client("server")

    def clients(self, constructor: Callable[..., Any], n: int = 2) -> list[Any]:
        """Several."""
        return [self.client(constructor) for _ in range(n)]


def run(code: str, given: dict[str, Any]) -> dict[str, Any]:
    """Runs code with these names and `lp`; returns the names that there are then."""
    names = {"lp": lp, "__name__": "example", **given}
    exec(compile(code, "<example>", "exec", dont_inherit=True), names)
    return names


def _run(code: str, given: dict[str, Any]) -> None:
    run(code, given)


def _end(running: lp.Running) -> None:
    with contextlib.suppress(lp.ProgramFailed):
        running.stop_and_wait()


Setup = Callable[[Example], object]
SETUPS: dict[str, Setup] = {}
"""Public name → what runs its example; where there is none the example needs nothing but `lp`."""


def example_of(*names: str) -> Callable[[Setup], Setup]:
    """What is decorated runs the examples of these public names, which have no `lp.` here."""

    def note(setup: Setup) -> Setup:
        for name in names:
            assert name not in SETUPS, name
            SETUPS[f"lp.{name}"] = setup
        return setup

    return note
