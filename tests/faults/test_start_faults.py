"""F06, F12, F13, F16, F18, F19: what goes wrong before a worker runs."""

from __future__ import annotations

import contextlib
import fcntl
import os
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import launchpad as lp
from launchpad.launch.rundir import directory
from launchpad.runtime import stop
from tests import nodes
from tests.faults.backends import both, everywhere
from tests.faults.test_reports import NeedsWhatIsNotThere
from tests.helpers import scripts
from tests.helpers.programs import failure_of, single


def handle_itself(handle: Any) -> Any:
    return handle


def its_answer(handle: Any) -> Any:
    return lp.Deferred(nodes.answer_of, handle)


@pytest.mark.timing
@pytest.mark.parametrize(
    ("launch_type", "kind", "argument"),
    [
        ("test_mt", nodes.CallsInInit, handle_itself),
        ("test_mp", nodes.CallsInInit, handle_itself),
        ("test_mp", nodes.CallsInDeferred, its_answer),
    ],
)
def test_f06_constructors_that_call_each_other_are_named_within_5_s(
    launch_type: str, kind: Any, argument: Any
) -> None:
    a, b = lp.CourierNode(kind), lp.CourierNode(kind)
    a.configure(argument(b.create_handle()))
    b.configure(argument(a.create_handle()))
    program = lp.Program("ring")
    program.add_node(a, label="a")
    program.add_node(b, label="b")
    began = time.monotonic()

    failure = failure_of(program, launch_type)

    assert time.monotonic() - began < 5
    assert (failure.phase, failure.outcome.error_type) == ("init", "deadlock")
    assert "a-0 → b-0 → a-0" in str(failure) or "b-0 → a-0 → b-0" in str(failure)
    assert "run()" in failure.outcome.hint


@pytest.mark.parametrize(
    ("argument", "phase"),
    [
        (lp.Deferred(nodes.fail_at_once, "deferred"), "init"),
        (lp.Deferred(os._exit, 3), "init"),
        ([lp.Deferred(nodes.Counter), NeedsWhatIsNotThere()], "import"),
    ],
    ids=["raises", "dies", "import"],
)
def test_f12_f13_a_deferred_counts_as_init_and_unpickling_as_import(
    argument: Any, phase: str
) -> None:
    assert failure_of(single(lp.PyNode(print, argument))).phase == phase


def test_f15_a_thread_that_is_given_up_waits_for_no_stop_handlers(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(stop, "_HANDLERS_S", 3600.0)  # else it is left over
    program = lp.Program("slow")
    with program.group("slow", restart=lp.RestartPolicy(max_restarts=0, start_timeout_s=0.2)):
        program.add_node(lp.PyNode(print, lp.Deferred(nodes.loop_for_ever)))

    assert failure_of(program, "test_mt").outcome.error_type == "StartTimeout"


@pytest.mark.timing
@everywhere
def test_f16_a_call_made_before_the_server_is_up_is_answered_when_it_is(launch_type: str) -> None:
    is_cluster = launch_type == "test_kubernetes"
    takes_s = 3.0 if is_cluster else 0.4  # till a cluster says where it is
    busy_s = 0.9 if is_cluster else 0.2  # the cluster itself keeps the machine busy
    late = single(lp.CourierNode(nodes.StartsLate, takes_s), "late")

    with lp.launch(late, launch_type) as running:
        ready_at = running.client("late").when()
        answered_at = time.monotonic()

    assert answered_at - ready_at < 0.1 + busy_s


def test_f19_a_directory_too_long_for_sockets_is_passed_over_for_a_shorter_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    long = tmp_path / ("x" * 100)
    long.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(long))

    with lp.launch(single(lp.CourierNode(nodes.Counter), "a" * 63), "test_mp") as running:
        assert running.client("a" * 63).add() == 1
        (endpoint,) = running.plan.endpoints.values()
        assert str(long) not in endpoint
        assert len(endpoint.removeprefix("unix:")) <= 107


def test_sound_34_where_the_forkserver_cannot_start_the_log_that_is_named_says_why(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("PYTHONHOME", "/nowhere")  # no new interpreter starts

    failure = failure_of(single(lp.CourierNode(nodes.Counter), "counter"))

    assert (failure.worker, failure.outcome.kind) == ("counter-0", "lost")
    assert "/nowhere" in Path(failure.log_path).read_text()
    assert "No module named 'encodings'" in str(failure)
    assert f"log:  {failure.log_path}" in str(failure)


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

    failure = failure_of(single(lp.PyNode(print), "printer"), launch_type)

    assert (failure.worker, failure.phase) == ("printer-0", "start")
    assert "Is a directory" in failure.outcome.cause


@pytest.mark.parametrize("executable", ["", None])
def test_sound_pass_2_where_no_interpreter_is_known_it_is_said_what_to_do(
    executable: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "executable", executable)

    with pytest.raises(lp.LaunchError, match=r"sys.executable is .*; set it to the path"):
        lp.launch(single(lp.PyNode(print)), "test_mp")


def test_a_frozen_application_does_not_start_itself_as_its_workers(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sys, "frozen", True, raising=False)
    program = single(lp.PyNode(print))

    with pytest.raises(lp.LaunchError, match=r"frozen application .* Launch with local_mt"):
        lp.launch(program, "test_mp")
    with pytest.raises(lp.LaunchError, match="frozen application"):
        lp.launch(program, "test_mt", view="browser")
    lp.testing.run(program)


LAUNCHES_WHEN_IMPORTED = """
import os
import launchpad as lp

with open("imported", "a") as file:
    file.write(f"{{os.getpid()}}\\n")

def work(): print("working", flush=True)

program = lp.Program("bomb")
program.add_node(lp.PyNode(work), label="worker")
lp.launch(program, "local_mp"{options})
"""


@pytest.mark.parametrize(
    ("options", "importer"),
    [("", "worker 'worker-0'"), (", preload=['train']", "the forkserver of the workers")],
)
@pytest.mark.parametrize("by", ["a script", "python -c"])
def test_a_module_that_launches_when_it_is_imported_is_refused_in_workers(
    tmp_path: Path, options: str, importer: str, by: str
) -> None:
    (tmp_path / "train.py").write_text(LAUNCHES_WHEN_IMPORTED.format(options=options))
    command = [sys.executable, "-c", "import train"]
    if by == "a script":
        command = scripts.write(tmp_path, "import train")

    ended = scripts.run(command, cwd=tmp_path)

    assert ended.returncode != 0
    assert f"{importer}" in ended.stderr
    assert "would launch its program once more" in ended.stderr
    # By the script, and by the one that was refused.
    assert len((tmp_path / "imported").read_text().splitlines()) == 2


def test_code_that_merely_runs_in_a_worker_for_tests_may_launch() -> None:
    with lp.testing.worker():
        lp.testing.run(single(lp.PyNode(print)))


def write_to_all_descriptors() -> None:
    for fd in range(3, 40):
        with contextlib.suppress(OSError):
            os.write(fd, b"\0" * 64)
    time.sleep(60)


def test_a_worker_that_writes_to_descriptors_of_others_fails_and_the_program_ends() -> None:
    program = single(lp.PyNode(write_to_all_descriptors), "stray")
    program.add_node(lp.PyNode(lp.wait_for_stop), label="other")

    failure = failure_of(program)

    assert failure.worker == "stray-0"
    assert "has written to a descriptor that it has not opened" in failure.outcome.cause


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
def test_sound_pass_2_a_limit_on_the_size_of_files_is_named(
    limit: int, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("LAUNCHPAD_LOGGING_DIR", raising=False)

    done = scripts.run([sys.executable, "-c", IN_SMALL_FILES.format(limit=limit)])

    assert done.returncode == 1
    assert "launchpad.errors.LaunchError: " in done.stderr
    assert said in done.stderr


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


def test_f18_only_what_dead_runs_have_left_is_swept(base: Path) -> None:
    run_of(base, "dead", "lock", "a-0.courier", "run.json")
    run_of(base, "killed-at-once")
    run_of(base, "not-ours", "notes")
    alive = run_of(base, "alive", "lock", "a-0.courier")

    with (alive / "lock").open() as lock:
        fcntl.flock(lock, fcntl.LOCK_SH)
        lp.testing.run(single(lp.PyNode(print)), 90, "test_mp")

    assert {path.name for path in base.iterdir()} == {"alive", "not-ours"}
    assert {path.name for path in alive.iterdir()} == {"lock", "a-0.courier"}
