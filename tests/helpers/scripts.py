"""Scripts that a test runs as a user would, in a process of their own, with this checkout's launchpad."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def write(folder: Path, text: str) -> list[str]:
    """The command that runs the text as a script."""
    path = folder / "script.py"
    path.write_text(text)
    return [sys.executable, str(path)]


def environment(**more: str) -> dict[str, str]:
    """This process's variables, launchpad of this checkout, and more."""
    return {**os.environ, "PYTHONPATH": str(ROOT), **more}


def run(
    command: list[str],
    *arguments: str,
    env: dict[str, str] | None = None,
    cgroup: Path | None = None,
    cwd: Path | None = None,
    timeout_s: float = 100.0,
) -> subprocess.CompletedProcess[str]:
    """Waits for its end; in that cgroup, if one is given."""
    if cgroup is not None:
        command = ["sh", "-c", f'echo $$ > {cgroup}/cgroup.procs && exec "$@"', "sh", *command]
    return subprocess.run(
        [*command, *arguments],
        capture_output=True,
        text=True,
        timeout=timeout_s,
        stdin=subprocess.DEVNULL,
        cwd=cwd,
        env=environment(**(env or {})),
    )


def start(command: list[str], *arguments: str, **options: object) -> subprocess.Popen[str]:
    """Start a script. The output of it and its workers is in `stdout`, unless the options say otherwise."""
    return subprocess.Popen(  # type: ignore[call-overload, no-any-return]
        [*command, *arguments],
        **{
            "stdout": subprocess.PIPE,
            "stderr": subprocess.STDOUT,
            "text": True,
            "env": environment(PYTHONUNBUFFERED="1"),
            **options,
        },
    )


@contextlib.contextmanager
def started() -> Iterator[Callable[..., subprocess.Popen[str]]]:
    """Yield a function like `start`. At the end, kill the scripts that still run."""
    with contextlib.ExitStack() as stack:

        def begin(command: list[str], *arguments: str, **options: object) -> subprocess.Popen[str]:
            process = stack.enter_context(start(command, *arguments, **options))
            stack.callback(process.kill)
            return process

        yield begin


def read_until(process: subprocess.Popen[str], text: str) -> str:
    """Return the output of a process, up to the line with the text."""
    assert process.stdout is not None
    output = ""
    for line in process.stdout:
        output += line
        if text in line:
            return output
    raise AssertionError(f"{text!r} never came:\n{output}")
