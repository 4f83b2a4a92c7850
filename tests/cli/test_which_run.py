"""The run that a command means: by name or id, on this machine or on a cluster."""

from __future__ import annotations

import contextlib
import json
import re
import sys
from collections.abc import Callable, Iterator
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest

import launchpad as lp
from launchpad.cli import runs
from launchpad.cli.command import CommandError
from launchpad.cli.main import main
from launchpad.graph.picture import picture_of
from launchpad.launch import registry
from launchpad.launch.detached import Detached
from launchpad.launch.rundir import locations
from launchpad.launch.rundir.directory import RunDirectory
from launchpad.launch.rundir.record import RunRecord
from launchpad.telemetry.trace import Trace
from tests.cli.conftest import Command
from tests.helpers import scripts
from tests.helpers.programs import single

Left = Callable[..., None]
BY_MODULE = [sys.executable, "-m", "launchpad"]


# Which run is meant


def record_of(run_id: str, runtime: Path | str = "", host: str = "some-host") -> RunRecord:
    """Of a run on a cluster."""
    program = run_id.partition("-")[0]
    return RunRecord(run_id, program, "kubernetes", 1, 0.0, str(runtime), "", {}, host)


ONE, OTHER = record_of("one-1"), replace(record_of("one-2"), pid=22)


ALL = [ONE, OTHER, record_of("two-1")]


@pytest.mark.parametrize(
    ("word", "run"), [("two", ALL[2]), ("two-1", ALL[2]), ("tw", ALL[2]), ("22", OTHER)]
)
def test_a_run_is_named_by_program_id_beginning_of_that_or_pid(word: str, run: RunRecord) -> None:
    assert runs.only(runs.matching(ALL, word), word, ALL) == run


@pytest.mark.parametrize(
    ("word", "error"),
    [
        (
            None,
            "several programs run; name one of them:\n  one-1  (one, pid 1)\n  one-2  (one, pid",
        ),
        ("one", "several runs are called 'one'; name one of them:\n  one-1  (one, pid 1)"),
        ("none", "no run is called 'none'; there are:\n  one-1"),
    ],
)
def test_where_not_just_one_run_is_meant_those_are_listed(word: str | None, error: str) -> None:
    with pytest.raises(CommandError, match=re.escape(error)):
        runs.only(runs.matching(ALL, word), word, ALL)


@pytest.mark.parametrize(
    ("command", "error"),
    [
        ("ps nothing", "no run is called 'nothing'; there are:\n  demo-"),
        ("logs nobody", "has no group or worker 'nobody'; its groups are server, talker"),
        ("stacks demo nobody", "has no group or worker 'nobody'"),
        ("restart talker", "has no worker 'talker'; it has server-0, talker-0, talker-1"),
    ],
)
def test_an_error_lists_what_there_is(
    demo: RunRecord, error_of: Command, command: str, error: str
) -> None:
    assert error in error_of(*command.split())


@pytest.mark.parametrize("command", ["stop", "stacks", "logs label"])
def test_when_nothing_runs_that_is_the_error(alone: Path, error_of: Command, command: str) -> None:
    assert "no program of yours" in error_of(*command.split())


@pytest.mark.parametrize(
    ("command", "code"), [("pss", 2), ("logs", 2), ("--help", 0), ("stop --help", 0)]
)
def test_a_wrong_command_line_is_another_exit_code_and_commands_explain_themselves(
    capsys: pytest.CaptureFixture[str], command: str, code: int
) -> None:
    with pytest.raises(SystemExit, match=str(code)):
        main(command.split())

    assert ("RUN is a program's name" in capsys.readouterr().out) == (code == 0)


# Runs on clusters


def test_a_cluster_and_settings_that_cannot_be_had_are_named(demo: RunRecord) -> None:
    pytest.importorskip("ray")
    clusters = {"RAY_ADDRESS": "127.0.0.1:1", "LAUNCHPAD_KUBERNETES": "/nowhere.yaml"}

    done = scripts.run([*BY_MODULE, "ps"], env=clusters)

    assert done.returncode == 0, done.stderr
    assert "demo" in done.stdout
    assert "RAY_ADDRESS=127.0.0.1:1" in done.stderr
    assert "LAUNCHPAD_KUBERNETES=/nowhere.yaml cannot be read" in done.stderr


def test_a_run_is_away_unless_its_launcher_holds_its_directory_here(tmp_path: Path) -> None:
    of_the_dead = tmp_path / "dead"
    of_the_dead.mkdir()
    (of_the_dead / locations.LOCK).touch()
    run = RunDirectory("alive", tmp_path / "alive", tmp_path)
    run.make_runtime()
    with contextlib.ExitStack() as stack:
        stack.callback(run.remove)

        assert not runs.is_detached(record_of("alive", run.runtime))
        assert runs.is_detached(record_of("dead", of_the_dead))
        assert runs.is_detached(record_of("elsewhere", tmp_path / "elsewhere"))


@pytest.fixture
def left(monkeypatch: pytest.MonkeyPatch, alone: Path) -> Iterator[Left]:
    """Has runs on clusters answer as these functions do, by name."""

    def answer(**asks: Callable[..., Any]) -> None:
        detached_runs = [Detached(record_of(name, alone / name), ask) for name, ask in asks.items()]
        monkeypatch.setattr(registry, "detached", lambda tell: detached_runs)

    runs.detached_runs.cache_clear()
    yield answer
    runs.detached_runs.cache_clear()


def refuse(*_: object) -> Any:
    raise lp.LaunchError("nobody answers")


def test_a_silent_run_hides_no_other(left: Left, capsys: pytest.CaptureFixture[str]) -> None:
    left(deaf=refuse, well=lambda *_: False)

    assert list(runs.detached_runs()) == ["well"]
    assert capsys.readouterr().err == "launchpad: deaf: nobody answers\n"


def test_workers_of_a_run_that_sends_no_numbers_are_listed_without(
    left: Left, output_of: Command, error_of: Command
) -> None:
    def ask(question: str, *_: object) -> Any:
        if question == "metrics":
            raise lp.LaunchError("not on Kubernetes")
        return question == "status" and [lp.WorkerStatus("loop-0", "loop", "running", 1, "", "")]

    left(far=ask)

    _, row = output_of("ps", "far").splitlines()
    plain = json.loads(output_of("ps", "far", "--json"))
    assert row.split() == ["loop-0", "running", "1", "-", "-", "-"]
    assert (plain["edges"], plain["workers"][0]["state"]) == (None, "running")
    assert error_of("metrics", "far") == "launchpad: not on Kubernetes\n"


def test_a_detached_run_is_drawn_and_traced(left: Left, tmp_path: Path, output_of: Command) -> None:
    file = tmp_path / "trace.json"
    questions: list[str] = []

    def ask(question: str, *_: object, **options: float) -> Any:
        questions.append(question)
        attempt = 1 + questions.count("ask_to_restart")
        if question == "status":
            return [lp.WorkerStatus("loop-0", "loop", "running", attempt, "", "")]
        if question == "picture":
            return asdict(picture_of(single(lp.PyNode(print))))
        if question == "trace":
            assert options["timeout_s"] > 0.5
            return Trace("far", "far", {}, (), {}, 0, 1, 0, 0, b"")
        return False

    left(far=ask)

    assert "flowchart LR" in output_of("graph", "far")
    output_of("trace", "far", "--seconds=0.5", "-o", str(file))
    assert json.loads(file.read_text())
    assert "attempt 2 began" in output_of("restart", "far", "loop-0")
