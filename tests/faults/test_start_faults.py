"""F12, F13, F14, F16, F19: what goes wrong before a worker runs."""

from __future__ import annotations

import os
import subprocess
import sys
import time
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import launchpad as lp
from launchpad.launch.rundir import directory
from tests import nodes
from tests.faults.backends import both, everywhere
from tests.helpers import scripts


class UnpicklesInto:
    """Stands for a value whose module cannot be imported where it is unpickled."""

    def __reduce__(self) -> Any:
        return __import__, ("a_module_that_does_not_exist",)


@pytest.fixture
def only_here() -> Iterator[types.ModuleType]:
    """A module that this process has and no other can import."""
    module = types.ModuleType("only_in_the_launcher")
    exec("class Node:\n    def run(self): pass\n", module.__dict__)
    sys.modules[module.__name__] = module
    yield module
    del sys.modules[module.__name__]


@pytest.mark.timing
@both
def test_f12_an_import_error_names_worker_phase_module_and_path(launch_type: str) -> None:
    program = lp.Program("imports")
    program.add_node(lp.CourierNode(nodes.Counter), label="counter")
    program.add_node(lp.PyClassNode(nodes.Caller, UnpicklesInto()), label="bad")
    began = time.monotonic()

    with pytest.raises(lp.ProgramFailed) as caught:
        lp.testing.run(program, 20, launch_type)

    outcome = caught.value.outcome
    assert time.monotonic() - began < 5
    assert (outcome.worker, outcome.phase, outcome.error_type) == (
        "bad-0",
        "import",
        "ModuleNotFoundError",
    )
    assert "a_module_that_does_not_exist" in outcome.cause
    assert "Traceback" in outcome.traceback
    assert "sys.path" in outcome.hint


def test_f12_a_class_whose_module_the_worker_cannot_import_is_named(only_here: Any) -> None:
    program = lp.Program("imports")
    program.add_node(lp.PyClassNode(only_here.Node), label="bad")

    with pytest.raises(lp.ProgramFailed, match="only_in_the_launcher") as caught:
        lp.testing.run(program, 20, "test_mp")

    assert (caught.value.worker, caught.value.phase) == ("bad-0", "import")


@both
def test_f13_an_exception_in_a_constructor_names_worker_phase_and_cause(launch_type: str) -> None:
    program = lp.Program("init")
    program.add_node(lp.CourierNode(nodes.FailsInInit), label="bad")

    with pytest.raises(lp.ProgramFailed) as caught:
        lp.testing.run(program, 20, launch_type)

    outcome = caught.value.outcome
    assert (outcome.worker, outcome.phase, outcome.error_type) == ("bad-0", "init", "RuntimeError")
    assert outcome.cause == "RuntimeError: no constructor for you"
    assert "in __init__" in outcome.traceback


@both
def test_f13_a_failing_deferred_counts_as_init(launch_type: str) -> None:
    program = lp.Program("init")
    program.add_node(lp.PyNode(print, lp.Deferred(nodes.fail_at_once, "deferred")), label="bad")

    with pytest.raises(lp.ProgramFailed) as caught:
        lp.testing.run(program, 20, launch_type)

    assert (caught.value.phase, caught.value.outcome.cause) == ("init", "ValueError: deferred")


@both
def test_f12_an_import_error_after_a_deferred_counts_as_import(launch_type: str) -> None:
    program = lp.Program("imports")
    arguments = [lp.Deferred(nodes.Counter), UnpicklesInto()]
    program.add_node(lp.PyNode(print, arguments), label="bad")

    with pytest.raises(lp.ProgramFailed) as caught:
        lp.testing.run(program, 20, launch_type)

    assert caught.value.phase == "import"


def test_f13_a_process_that_dies_in_a_deferred_dies_in_init() -> None:
    program = lp.Program("init")
    program.add_node(lp.PyNode(print, lp.Deferred(os._exit, 3)), label="bad")

    with pytest.raises(lp.ProgramFailed) as caught:
        lp.testing.run(program, 20, "test_mp")

    assert caught.value.phase == "init"


@pytest.mark.timing
@both
def test_f13_those_who_wait_for_it_are_told_at_once(launch_type: str) -> None:
    program = lp.Program("init")
    bad = program.add_node(lp.CourierNode(nodes.FailsInInit, 0.5), label="bad")
    program.add_node(lp.PyNode(nodes.add_once, bad), label="waits")
    running = lp.launch(program, launch_type)
    began = time.monotonic()

    with pytest.raises(lp.courier.WorkerFailed, match="no constructor for you") as told:
        running.client("bad").add()
    with pytest.raises(lp.ProgramFailed) as caught:
        running.wait(20)

    assert time.monotonic() - began < 5
    assert told.value.server == "bad-0"
    assert (caught.value.worker, caught.value.phase) == ("bad-0", "init")


@pytest.mark.timing
@everywhere
def test_f16_a_call_made_before_the_server_is_up_is_answered_when_it_is(launch_type: str) -> None:
    takes_s = 3.0 if launch_type == "test_kubernetes" else 0.4  # till a cluster says where it is
    program = lp.Program("late")
    program.add_node(lp.CourierNode(nodes.StartsLate, takes_s), label="late")

    with lp.launch(program, launch_type) as running:
        ready_at = running.client("late").when()
        answered_at = time.monotonic()

    assert answered_at - ready_at < 0.1 + 0.2  # the bar is 100 ms; the rest is for a busy machine


@both
def test_f19_a_directory_too_long_for_sockets_is_passed_over_for_a_shorter_one(
    launch_type: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    long = tmp_path / ("x" * 100)
    long.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(long))
    program = lp.Program("long")
    program.add_node(lp.CourierNode(nodes.Counter), label="a" * 63)

    with lp.launch(program, launch_type) as running:
        assert running.client("a" * 63).add() == 1
        (endpoint,) = running.plan.endpoints.values()
        assert str(long) not in endpoint
        assert launch_type == "test_mt" or len(endpoint.removeprefix("unix:")) <= 107


def test_sound_34_where_the_forkserver_cannot_start_the_log_that_is_named_says_why(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("PYTHONHOME", "/nowhere")  # no new interpreter starts
    program = lp.Program("homeless")
    program.add_node(lp.CourierNode(nodes.Counter), label="counter")

    with pytest.raises(lp.ProgramFailed) as caught:
        lp.testing.run(program, 20, "test_mp")

    outcome = caught.value.outcome
    assert (outcome.worker, outcome.kind) == ("counter-0", "lost")
    assert "/nowhere" in Path(outcome.log_path).read_text()
    assert "No module named 'encodings'" in str(caught.value)
    assert f"log:  {outcome.log_path}" in str(caught.value)


@both
def test_sound_pass_2_a_worker_whose_log_cannot_be_opened_says_so(
    launch_type: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LAUNCHPAD_LOGGING_DIR", str(tmp_path))

    begin = directory.RunDirectory.create

    def create(*args: Any) -> directory.RunDirectory:
        run = begin(*args)
        run.log("printer-0").mkdir()  # in the place of the file
        return run

    monkeypatch.setattr(directory.RunDirectory, "create", create)
    program = lp.Program("hindered")
    program.add_node(lp.PyNode(print), label="printer")

    with pytest.raises(lp.ProgramFailed) as caught:
        lp.testing.run(program, 20, launch_type)

    assert (caught.value.worker, caught.value.phase) == ("printer-0", "start")
    assert "Is a directory" in caught.value.outcome.cause


@pytest.mark.parametrize("executable", ["", None])
def test_sound_pass_2_where_no_interpreter_is_known_the_launch_is_refused_with_what_to_do(
    executable: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "executable", executable)
    program = lp.Program("embedded")
    program.add_node(lp.PyNode(print), label="printer")

    with pytest.raises(lp.LaunchError, match=r"sys.executable is .*; set it to the path"):
        lp.testing.run(program, 20, "test_mp")


IN_SMALL_FILES = """
import resource
import launchpad as lp

program = lp.Program("small")
program.add_node(lp.PyNode(print, "x" * 5000), label="printer")
resource.setrlimit(resource.RLIMIT_FSIZE, ({limit}, {limit}))
lp.launch(program, "local_mp")
"""


@pytest.mark.parametrize(
    ("limit", "said"),
    [
        (0, "no directory for logs: No usable temporary directory found in"),
        (1000, "File too large; this is the limit on the size of a file (ulimit -f)"),
    ],
)
def test_sound_pass_2_a_limit_on_the_size_of_files_is_named(limit: int, said: str) -> None:
    environment = scripts.environment()
    environment.pop("LAUNCHPAD_LOGGING_DIR", None)

    done = subprocess.run(
        [sys.executable, "-c", IN_SMALL_FILES.format(limit=limit)],
        env=environment,
        capture_output=True,
        text=True,
        timeout=60,
    )

    assert done.returncode == 1
    assert "launchpad.errors.LaunchError: " in done.stderr
    assert said in done.stderr


FEW_DESCRIPTORS = """
import resource
import launchpad as lp

program = lp.Program("full")
with program.group("waiter"):
    for _ in range(60):
        program.add_node(lp.PyNode(lp.wait_for_stop))
resource.setrlimit(resource.RLIMIT_NOFILE, (40, 40))
lp.launch(program, "local_mp")
"""


def test_sound_34_a_worker_that_could_not_be_started_names_no_log(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", FEW_DESCRIPTORS],
        env={**scripts.environment(), "LAUNCHPAD_LOGGING_DIR": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=60,
    )

    said = done.stdout + done.stderr
    assert "failed in start (attempt 1): " in said
    assert "the limit on open files of one process (ulimit -n)" in said
    assert "  log: " not in said
