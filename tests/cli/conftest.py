"""Commands that run in this process, and a program for them to look at."""

from __future__ import annotations

import contextlib
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import launchpad as lp
from launchpad.cli import runs
from launchpad.cli.main import main
from launchpad.launch.rundir import record
from launchpad.launch.rundir.record import RunRecord
from tests import nodes
from tests.helpers import endless_printer, scripts
from tests.waiting import until

Command = Callable[..., str]


@pytest.fixture
def output_of(capsys: pytest.CaptureFixture[str]) -> Command:
    """Runs a command that ends well: what it prints."""

    def run(*arguments: str) -> str:
        capsys.readouterr()
        code = main(list(arguments))
        printed = capsys.readouterr()
        assert code == 0, printed.err
        return printed.out

    return run


@pytest.fixture
def error_of(capsys: pytest.CaptureFixture[str]) -> Command:
    """Runs a command that cannot do what it is to do: its error."""

    def run(*arguments: str) -> str:
        assert main(list(arguments)) == 1
        return capsys.readouterr().err

    return run


def program_of(name: str, **options: Any) -> lp.Program:
    """Two talkers, and the server that they call."""
    program = lp.Program(name)
    server = program.add_node(lp.CourierNode(nodes.Counter), label="server")
    with program.group("talker", **options):
        for number in range(2):
            program.add_node(lp.PyNode(endless_printer.talk, server, number))
    return program


def have_talked(logs: Path) -> bool:
    """Whether each talker has printed something."""
    files = [logs / f"talker-{number}.log" for number in range(2)]
    return all(file.exists() and file.stat().st_size for file in files)


@contextlib.contextmanager
def launched(launch_type: str, name: str, **options: Any) -> Iterator[lp.Running]:
    """A program of this process, whose talkers have printed something."""
    with lp.launch(program_of(name, **options), launch_type) as running:
        until(lambda: have_talked(running.log_directory))
        # The launcher may learn that a worker runs after the worker has printed.
        until(lambda: {worker.state for worker in running.status()} == {"running"})
        yield running


@pytest.fixture(scope="module")
def demo() -> Iterator[RunRecord]:
    """A program of another process that all tests of a file look at, and that none of them changes."""
    script = "import launchpad as lp; from tests.cli.conftest import program_of;"
    launch = "lp.launch(program_of('demo'), 'local_mp', terminal='output_to_files')"
    with scripts.start([sys.executable, "-c", script + launch]) as process:
        (found,) = until(record.running)
        until(lambda: have_talked(Path(found.logs)))
        with runs.connected(found) as launcher:
            until(lambda: {worker["state"] for worker in launcher.status()} == {"running"})
        yield found
        process.terminate()


@pytest.fixture
def alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """No other run is seen from here; where the runs of this test are. Sockets need short paths."""
    with tempfile.TemporaryDirectory(prefix="lp-", dir="/tmp") as runtime:
        monkeypatch.setenv("LAUNCHPAD_RUNTIME_DIR", runtime)
        monkeypatch.setenv("LAUNCHPAD_LOGGING_DIR", str(tmp_path / "logs"))
        yield Path(runtime)
