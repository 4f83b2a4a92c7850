"""What a program of tests/carry_over/programs prints when it is run as a user runs it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tests.helpers import scripts

ROOT = Path(__file__).resolve().parents[2]


def output_of(name: str, *flags: str, deadline_s: float = 100, **environment: str) -> str:
    done = subprocess.run(
        [sys.executable, "-m", f"tests.carry_over.programs.{name}", *flags],
        cwd=ROOT,
        env=scripts.environment(**environment),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=deadline_s,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout
