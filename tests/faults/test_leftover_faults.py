"""F18: a run was killed and has left things behind; the next launch works, and sweeps what has no owner."""

from __future__ import annotations

import fcntl
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

import launchpad as lp
from tests import nodes
from tests.faults.backends import everywhere


@pytest.fixture
def base(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The folder of all runs; its name is short, as the path of a socket has to be."""
    with tempfile.TemporaryDirectory() as folder:
        monkeypatch.setenv("LAUNCHPAD_RUNTIME_DIR", folder)
        yield Path(folder)


def run_of(base: Path, name: str, *files: str) -> Path:
    directory = base / name
    directory.mkdir(mode=0o700)
    for file in files:
        (directory / file).touch()
    return directory


@everywhere
def test_f18_only_what_dead_runs_have_left_is_swept(base: Path, launch_type: str) -> None:
    run_of(base, "dead", "lock", "a-0.courier", "run.json")
    run_of(base, "killed-at-once")
    run_of(base, "not-ours", "notes")
    alive = run_of(base, "alive", "lock", "a-0.courier")
    program = lp.Program("after")
    counter = program.add_node(lp.CourierNode(nodes.Counter), label="counter")
    program.add_node(lp.PyNode(nodes.add_once, counter), label="caller")

    lock = os.open(alive / "lock", os.O_RDWR)
    try:
        fcntl.flock(lock, fcntl.LOCK_SH)
        lp.testing.run(program, 90, launch_type)
    finally:
        os.close(lock)

    assert {path.name for path in base.iterdir()} == {"alive", "not-ours"}
    assert {path.name for path in alive.iterdir()} == {"lock", "a-0.courier"}
