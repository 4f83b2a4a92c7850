"""Terminals of tmux, which tests look at and type into."""

from __future__ import annotations

import contextlib
import os
import re
import shlex
import shutil
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Sequence

import pytest

from tests.waiting import until

DEADLINE_S = 30.0
_NOT_PASSED = ("NO_COLOR", "COLUMNS", "LINES")


class Screen:
    """A terminal in which `top` runs: its text, its colors and its keyboard."""

    def __init__(self, tmux: Callable[..., str]) -> None:
        self._tmux = tmux

    @property
    def text(self) -> str:
        threading.Event().wait(0.1)  # nothing signals what a terminal shows
        return self._tmux("capture-pane", "-p")

    def waits_for(self, pattern: str) -> str:
        """Wait until the terminal shows the pattern. Return its text."""
        deadline = time.monotonic() + DEADLINE_S
        while True:
            text = self.text
            if re.search(pattern, text, re.MULTILINE):
                return text
            assert time.monotonic() < deadline, f"there is no {pattern!r}:\n{text}"

    def press(self, *keys: str) -> None:
        self._tmux("send-keys", *keys)

    def resize(self, columns: int, rows: int) -> None:
        self._tmux("resize-window", "-x", str(columns), "-y", str(rows))

    @property
    def colors(self) -> set[str]:
        return set(
            re.findall(r"\x1b\[[0-9;]*(?:38|48);[25][0-9;]*m", self._tmux("capture-pane", "-ep"))
        )


@contextlib.contextmanager
def opened() -> Iterator[Callable[..., Screen]]:
    """Yield a function that runs a command in a new terminal.

    It is called as `start(command, columns, rows, **environment)`.
    """
    if shutil.which("tmux") is None:
        pytest.skip("no tmux here")
    socket = f"lp-{os.getpid()}"
    passed = {
        n: os.environ[n] for n in os.environ if n.startswith("LAUNCHPAD_") or n == "PYTHONPATH"
    }

    def tmux(*arguments: str) -> str:
        done = subprocess.run(
            ["tmux", "-L", socket, *arguments], capture_output=True, text=True, timeout=30
        )
        return done.stdout

    def start(command: Sequence[str], columns: int, rows: int, **environment: str) -> Screen:
        variables = [f"{name}={value}" for name, value in (passed | environment).items()]
        unset = [word for name in _NOT_PASSED for word in ("-u", name)]
        size = ["-x", str(columns), "-y", str(rows)]
        tmux("new-session", "-d", *size, shlex.join(["env", *unset, *variables, *command]))
        return Screen(tmux)

    try:
        yield start
    finally:
        tmux("kill-server")
        until(lambda: not tmux("ls"))
