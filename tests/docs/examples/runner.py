"""Runs the example of a docstring, with the names that it takes for granted."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

import launchpad as lp
from tests.docs.examples import stand_ins

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

    def changed(self, old: str, new: str) -> Example:
        """The same with a value in its place that takes less time, or is true here."""
        assert old in self.code
        self.code = self.code.replace(old, new)
        return self

    def run(self, /, **given: Any) -> dict[str, Any]:
        """Runs it here; returns the names that there are then. What it prints is in `printed`."""
        self.printed = []
        return run(self.code, {"print": self._print, **given})

    def finds(self, given: Mapping[str, Any], **expected: Any) -> None:
        """Runs it here, after which these names have these values."""
        names = self.run(**given)
        assert {name: names[name] for name in expected} == expected

    def _print(self, *values: object, **options: Any) -> None:
        print(*values, **options)
        assert self.printed is not None
        self.printed.append(values)

    def run_in_worker(self, /, **given: Any) -> str:
        """Runs it as the one worker of a program; returns what it has printed."""
        return self.logs_of(lp.PyNode(run_code, self.code, **given))

    def logs_of(self, node: Any, *, is_restarted: bool = False) -> str:
        """Runs a program of this node to its end; returns what the worker has printed."""
        running = self.launch(stand_ins.program_of(node, is_restarted=is_restarted))
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
        return self._run_until(lambda running: running.wait(DEADLINE_S), given)

    def run_and_stop(self, /, **given: Any) -> dict[str, Any]:
        """The same of a program that does not end by itself: it is stopped when all workers run."""
        return self._run_until(lambda running: running.stop_and_wait(), given)

    def _run_until(
        self, end: Callable[[lp.Running], object], given: Mapping[str, Any]
    ) -> dict[str, Any]:
        names = self.run(**{"program": lp.Program("example"), **given})
        if not self.launched:
            self.launch(names["program"])
        for running in self.launched:
            end(running)
        return names

    def learner_process(self) -> dict[str, Any]:
        """A learner that has made a step, in a process, until the example ends; and a client of it."""
        running = self._launch(stand_ins.training()["program"], "test_mp")
        self.stack.callback(_end, running)
        client: Any = running.client("learner")
        client.step()
        return {"running": running, "client": client}

    def client(self, constructor: Callable[..., Any], *args: Any, **options: Any) -> Any:
        """A client of what this makes, which a program of its own serves."""
        return self.client_of(lp.CourierNode(constructor, *args, **options))

    def client_of(self, node: Any, *, is_restarted: bool = False) -> Any:
        program = stand_ins.program_of(node, is_restarted=is_restarted)
        return self.launch(program).client("worker")


def run(code: str, given: Mapping[str, Any]) -> dict[str, Any]:
    """Runs code with these names and those that many take for granted; returns what there are then."""
    names = {"__name__": "example", **stand_ins.NAMES, **given}
    exec(compile(code, "<example>", "exec", dont_inherit=True), names)
    return names


def run_code(code: str, parameters: Any = None, **given: Any) -> None:
    """What a worker does whose work is an example."""
    run(code, {"parameters": parameters, **given})


def _end(running: lp.Running) -> None:
    with contextlib.suppress(lp.ProgramFailed):
        running.stop_and_wait()


Setup = Callable[[Example], object]
SETUPS: dict[str, Setup] = {}
"""Public name → what runs its example; where there is none the example needs only what all have."""


def examples(setups: Mapping[str, Setup]) -> None:
    """Note what runs the examples of public names, several to a setup, which have no `lp.` here."""
    for names, setup in setups.items():
        for name in names.split():
            assert f"lp.{name}" not in SETUPS, name
            SETUPS[f"lp.{name}"] = setup


def example_of(names: str) -> Callable[[Setup], Setup]:
    """What is decorated runs the examples of these public names."""

    def note(setup: Setup) -> Setup:
        examples({names: setup})
        return setup

    return note
