"""The backend of local processes, below launch(): plans go in, reports come out, nothing is left."""

from __future__ import annotations

import dataclasses
import os
import pickle
import queue
import resource
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

import psutil
import pytest

import launchpad as lp
from launchpad import courier
from launchpad.launch.backends.backend import Workers
from launchpad.launch.backends.processes import backend, exit_status
from launchpad.launch.backends.processes.backend import Processes, ProcessWorkers
from launchpad.launch.backends.processes.messages import ChildExited
from launchpad.launch.plan import LaunchPlan
from launchpad.launch.planning import planner
from launchpad.launch.rundir.directory import RunDirectory
from launchpad.launch.worker.spec import WorkerSpec
from launchpad.outcome import Outcome
from launchpad.runtime.commands import AnnounceGone, KillWorker, StartWorker, StopWorker
from launchpad.runtime.events import Ended, Event, Ready
from tests.helpers import spawning_nodes
from tests.waiting import until

DEADLINE_S = 60.0
ReportT = TypeVar("ReportT", bound=Event)


class Launched:
    """A plan on the backend, without a supervisor."""

    def __init__(
        self, program: lp.Program, local: dict[str, lp.PythonProcess] | None = None
    ) -> None:
        planned = planner.plan(program, Processes(), "local_mp", local)
        self.run = RunDirectory.create(program.name, planned.endpoints)
        placed = [
            dataclasses.replace(w, endpoints={a: self.run.place(e) for a, e in w.endpoints.items()})
            for w in planned.workers
        ]
        self.plan = dataclasses.replace(planned, workers=tuple(placed))
        self.reports: queue.SimpleQueue[Event] = queue.SimpleQueue()
        self.ended: dict[str, Outcome] = {}
        self.workers: Workers = Processes().create_workers(self.plan, self.run, self.reports.put)
        self.run.make_runtime()

    def start(self, attempt: int = 1) -> Launched:
        for worker in self.plan.workers:
            self.workers.execute(StartWorker(worker.name, attempt))
        return self

    def next(self, kind: type[ReportT]) -> ReportT:
        """The next report of that kind; others before it are passed over."""
        while True:
            report = self.reports.get(timeout=DEADLINE_S)
            if isinstance(report, kind):
                return report

    def outcome(self) -> Outcome:
        """How the next worker ended."""
        return self.next(Ended).outcome

    def log(self, worker: str) -> str:
        return self.run.log(worker).read_text()

    def wait_for_line(self, worker: str) -> str:
        """The first line that a worker prints."""
        path = self.run.log(worker)
        until(lambda: path.exists() and "\n" in path.read_text())
        return path.read_text().split("\n")[0]

    @property
    def forkserver(self) -> psutil.Process:
        (forkserver,) = self.subreaper.children()
        return forkserver

    @property
    def subreaper(self) -> psutil.Process:
        assert isinstance(self.workers, ProcessWorkers)
        return psutil.Process(self.workers._subreaper.pid)

    def close(self) -> None:
        self.workers.close()
        self.run.remove()


Launch = Callable[..., Launched]


def program_of(nodes: dict[str, Any]) -> lp.Program:
    """A group for each label, of a node or of a function to run."""
    program = lp.Program("processes")
    for label, node in nodes.items():
        program.add_node(lp.PyNode(node) if callable(node) else node, label=label)
    return program


@pytest.fixture
def launch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Launch]:
    """Starts a program of nodes, each a group of its own named by its keyword."""
    monkeypatch.setenv("LAUNCHPAD_LOGGING_DIR", str(tmp_path))
    launched: list[Launched] = []

    def start(**nodes: Any) -> Launched:
        launched.append(Launched(program_of(nodes)))
        return launched[-1].start()

    yield start
    for one in launched:
        one.close()


def is_dead(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


# Beginnings and ends.


def test_every_start_ends_once_has_its_number_and_passes_over_requests_that_come_too_late(
    launch: Launch,
) -> None:
    def tell() -> None:
        raise RuntimeError(f"attempt {lp.current().attempt}")

    launched = launch(worker=tell)
    first = launched.outcome()
    launched.start(attempt=2)
    second = launched.outcome()
    launched.workers.execute(StopWorker("worker-0"))
    launched.workers.execute(KillWorker("worker-0"))
    launched.workers.execute(AnnounceGone({"worker-0": "why"}))

    assert (first.attempt, first.cause) == (1, "RuntimeError: attempt 1")
    assert (second.attempt, second.cause) == (2, "RuntimeError: attempt 2")
    assert launched.reports.empty()


# Workers of one launch, each of which does one thing and ends. They are closures, so that no worker imports
# this module.


class Reduced:
    """A value that is made in the worker, by what its pickle calls."""

    def __init__(self, function: Callable[..., Any], *arguments: object) -> None:
        self._reduced = function, arguments

    def __reduce__(self) -> Any:
        return self._reduced


def workers() -> dict[str, Any]:
    def fail_without_streams() -> None:
        sys.stdout = sys.stderr = None  # type: ignore[assignment]
        raise ValueError("boom")

    def fail_with_closed_streams() -> None:
        sys.stdout.close()
        sys.stderr.close()
        raise ValueError("boom")

    def write() -> None:
        print("by print")
        print("by print to stderr", file=sys.stderr)
        os.write(1, b"by write\n")
        os.write(2, b"by write to stderr\n")
        subprocess.run(["echo", "by a child"], check=True)
        print("by print, unfinished", end="")

    def links() -> list[str]:
        found = []
        for fd in os.listdir("/proc/self/fd"):
            try:
                found.append(os.readlink(f"/proc/self/fd/{fd}").split(":")[0])
            except OSError:
                continue
        return found

    def describe() -> None:
        import __main__

        print(sorted(n for n in vars(__main__) if not n.startswith("__")))
        print(signal.getsignal(signal.SIGINT) is signal.default_int_handler)
        print(signal.getsignal(signal.SIGTERM) == signal.SIG_DFL)
        print(os.read(0, 1), os.getpgrp() == os.getpid())
        print(sum(link == "socket" for link in links()))
        print(resource.getrlimit(resource.RLIMIT_NOFILE))
        print(psutil.Process().name())

    def leave_threads() -> None:
        import atexit
        import concurrent.futures

        atexit.register(print, "good-bye")
        main_is_over = threading.Event()
        threading.Thread(
            target=lambda: (lp.wait_for_stop(), print("thread", flush=True), main_is_over.set())
        ).start()
        concurrent.futures.ThreadPoolExecutor(1).submit(
            lambda: (main_is_over.wait(), print("executor", flush=True))
        )

    return {
        "has-no-interpreter": print,
        "has-no-streams": fail_without_streams,
        "closes-its-streams": fail_with_closed_streams,
        "writes": write,
        "sees": lp.PyNode(
            lambda color, gpus: print(color, f"{gpus!r}", sys.argv[-1]),
            Reduced(os.getenv, "COLOR"),
            Reduced(os.getenv, "CUDA_VISIBLE_DEVICES"),
        ),
        "has-flags": lambda: print(sys.flags.utf8_mode, sys.flags.hash_randomization, sys.argv[-1]),
        "has-another-python": lambda: print(os.environ["VIA"]),
        "describes-itself": describe,
        "leaves-threads": leave_threads,
        "has-100-mb": lp.PyNode(lambda data: print(len(data)), os.urandom(1 << 20) * 100),
    }


@pytest.fixture(scope="module")
def over(tmp_path_factory: pytest.TempPathFactory) -> Launched:
    """The launch of these workers, when all have ended."""
    python = tmp_path_factory.mktemp("python") / "python"
    python.write_text(f'#!/bin/sh\nVIA=other exec {sys.executable} "$@"\n')
    python.chmod(0o755)
    seed = {"seed": 7}
    local = {
        "has-no-interpreter": lp.PythonProcess(python="/nowhere/python"),
        "sees": lp.PythonProcess(args=seed, env={"COLOR": "red"}),
        "has-flags": lp.PythonProcess(args=seed, env={"PYTHONUTF8": "1", "PYTHONHASHSEED": "0"}),
        "has-another-python": lp.PythonProcess(python=str(python)),
    }
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("LAUNCHPAD_LOGGING_DIR", str(tmp_path_factory.mktemp("logs")))
        launched = Launched(program_of(workers()), local)
    try:
        launched.start()
        outcomes = [launched.outcome() for _ in launched.plan.workers]
    finally:
        launched.close()
    launched.ended.update((outcome.worker.removesuffix("-0"), outcome) for outcome in outcomes)
    return launched


@pytest.mark.parametrize(
    ("worker", "phase", "error_type", "cause"),
    [
        ("has-no-interpreter", "start", "FileNotFoundError", "'/nowhere/python'"),
        ("has-no-streams", "run", "ValueError", "ValueError: boom"),
        ("closes-its-streams", "run", "ValueError", "ValueError: boom"),
    ],
)
def test_a_failure_is_named_with_the_phase_it_happened_in_whatever_its_process_is_like(
    over: Launched, worker: str, phase: str, error_type: str, cause: str
) -> None:
    ended = over.ended[worker]

    assert (ended.kind, ended.phase, ended.error_type) == ("failed", phase, error_type)
    assert ended.cause.endswith(cause)


@pytest.mark.parametrize(
    ("worker", "printed"),
    [
        (
            "writes",
            "by print\nby print to stderr\nby write\nby write to stderr\nby a child\n"
            "by print, unfinished",
        ),
        ("sees", "red '' --seed=7\n"),
        ("has-flags", "1 0 --seed=7\n"),
        ("has-another-python", "other\n"),
        ("leaves-threads", "thread\nexecutor\ngood-bye\n"),
        ("has-100-mb", f"{100 << 20}\n"),
    ],
)
def test_a_worker_has_the_environment_and_interpreter_it_was_given_and_all_it_prints_is_in_its_log(
    over: Launched, worker: str, printed: str
) -> None:
    assert over.ended[worker].kind == "succeeded", over.log(f"{worker}-0")
    assert over.log(f"{worker}-0") == printed


def test_a_worker_is_a_plain_process_with_default_signals_few_descriptors_and_its_own_name(
    over: Launched,
) -> None:
    *described, limits, name = over.log("describes-itself-0").splitlines()

    assert described == ["[]", "True", "True", "b'' True", "1"]
    assert limits == str(resource.getrlimit(resource.RLIMIT_NOFILE))
    assert sys.platform != "linux" or name == "describes-itself-0"[:15]


def test_a_forkserver_that_cannot_be_started_is_a_launch_error(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sys, "executable", "/nowhere/python")

    with pytest.raises(lp.LaunchError, match="/nowhere/python"):
        lp.launch(lp.make_program(lp.PyNode(print)), "test_mp")


# Requests.


def test_a_run_that_never_asked_about_stopping_is_interrupted_and_others_end_in_their_own_time(
    launch: Launch,
) -> None:
    def never_asks(block: Callable[[], Any]) -> Callable[[], None]:
        def run() -> None:
            try:
                print("running", flush=True)
                block()
            finally:
                print("cleaned up", flush=True)

        return run

    def waits() -> None:
        stop = lp.stop_event()
        print("running", flush=True)
        stop.wait()
        print("in its own time")

    def leaves_a_thread() -> None:
        def save() -> None:
            main.join()
            print("saved")

        main = threading.main_thread()
        threading.Thread(target=save).start()
        print("running", flush=True)
        lp.wait_for_stop()

    def changes_its_process() -> None:
        print("running", flush=True)
        os.chdir("/")
        os.closerange(0, 3)
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        time.sleep(1000)

    runs: dict[str, tuple[Callable[[], None], str]] = {
        "sleeps": (never_asks(lambda: time.sleep(1000)), "cleaned up\n"),
        "waits-for-event": (never_asks(lambda: threading.Event().wait()), "cleaned up\n"),
        "reads": (never_asks(lambda: os.read(os.pipe()[0], 1)), "cleaned up\n"),
        "computes": (never_asks(lambda: [None for i in iter(int, 1)]), "cleaned up\n"),
        "waits": (waits, "in its own time\n"),
        "leaves-a-thread": (leaves_a_thread, "saved\n"),
        "changes-its-process": (changes_its_process, ""),
    }
    launched = launch(**{label: run for label, (run, _) in runs.items()})
    for label in runs:
        assert launched.wait_for_line(f"{label}-0") == "running"
        launched.workers.execute(StopWorker(f"{label}-0"))

    outcomes = [launched.outcome() for _ in runs]

    assert {(ended.kind, ended.exit_code) for ended in outcomes} == {("stopped", 0)}
    printed = {label: launched.log(f"{label}-0").removeprefix("running\n") for label in runs}
    assert printed == {label: last_words for label, (_, last_words) in runs.items()}


def test_a_worker_that_does_not_stop_is_killed_and_its_stacks_are_in_the_log(
    launch: Launch,
) -> None:
    def never_stops() -> None:
        while True:
            try:
                print("running", flush=True)
                time.sleep(1000)
            except BaseException:
                print("no", flush=True)

    launched = launch(worker=never_stops)
    assert launched.wait_for_line("worker-0") == "running"
    launched.workers.execute(StopWorker("worker-0"))
    until(lambda: "no\n" in launched.log("worker-0"))

    launched.workers.execute(KillWorker("worker-0"))

    ended = launched.outcome()
    assert (ended.kind, ended.cause) == ("stopped", "did not stop in time; killed")
    assert "in never_stops" in launched.log("worker-0")
    assert "in execute_in_order" not in launched.log("worker-0")  # a frame of the forkserver


# Nobody outlives what they belong to. What left its process group is found on Linux only.


def start_sleepers() -> None:
    """Prints the numbers of the worker and of two processes, one in a session of its own."""
    sessions = [False, True] if sys.platform == "linux" else [False]
    sleepers = [subprocess.Popen(["sleep", "1000"], start_new_session=new) for new in sessions]
    print(os.getpid(), *(sleeper.pid for sleeper in sleepers), flush=True)
    time.sleep(1000)


def pids_of(launched: Launched, worker: str) -> list[int]:
    return [int(pid) for pid in launched.wait_for_line(worker).split()]


def test_what_a_worker_started_dies_with_it_and_nothing_else(launch: Launch) -> None:
    launched = launch(one=start_sleepers, two=start_sleepers)
    first, others = pids_of(launched, "one-0"), pids_of(launched, "two-0")

    os.kill(first[0], signal.SIGKILL)
    launched.outcome()

    until(lambda: all(map(is_dead, first)))
    assert not any(map(is_dead, others))


@pytest.mark.parametrize("answers", [True, False])
def test_closing_ends_workers_that_still_run_and_what_they_started_also_if_the_forkserver_hangs(
    launch: Launch, answers: bool
) -> None:
    launched = launch(worker=start_sleepers)
    pids = pids_of(launched, "worker-0")
    subreaper, forkserver = launched.subreaper, launched.forkserver
    if not answers:
        forkserver.suspend()

    launched.workers.close()

    assert all(map(is_dead, [*pids, subreaper.pid, forkserver.pid]))
    if answers:
        assert launched.outcome().kind == "stopped"


def test_when_the_forkserver_dies_all_workers_are_lost_also_one_that_is_started_then(
    launch: Launch,
) -> None:
    launched = launch(one=start_sleepers, two=start_sleepers)
    pids = [*pids_of(launched, "one-0"), *pids_of(launched, "two-0")]
    for _ in range(2):
        launched.next(Ready)  # which its forkserver passes on a moment after the worker has begun

    launched.forkserver.kill()

    lost = [launched.outcome(), launched.outcome()]
    assert {o.worker for o in lost} == {"one-0", "two-0"}
    assert {(o.kind, o.phase) for o in lost} == {("lost", "run")}
    assert "the forkserver of all workers was killed by SIGKILL" in lost[0].cause
    until(lambda: all(map(is_dead, pids)))
    assert launched.reports.empty()
    launched.workers.execute(StartWorker("one-0", 2))
    late = launched.outcome()
    assert (late.kind, late.phase, late.attempt) == ("lost", "start", 2)


# Endings are a table.

KILL, SEGV, EXIT_3 = signal.SIGKILL, signal.SIGSEGV, 3 << 8
SUCCEEDED = Outcome("w", "succeeded")
FAILED = Outcome("w", "failed", cause="ValueError: boom")
CUT_OFF = "cut off after its work had ended, while its process waited for its end"


@pytest.mark.parametrize(
    ("said", "status", "killed", "kind", "cause"),
    [
        (SUCCEEDED, 0, False, "succeeded", ""),
        (SUCCEEDED, 0, True, "succeeded", ""),
        (SUCCEEDED, KILL, True, "stopped", CUT_OFF),
        (FAILED, KILL, True, "failed", "ValueError: boom"),
        (SUCCEEDED, SEGV, False, "failed", "killed by SIGSEGV after its work was done"),
        (FAILED, SEGV, False, "failed", "ValueError: boom"),
        (None, KILL, True, "stopped", "did not stop in time; killed"),
        (None, KILL, False, "failed", "killed by SIGKILL, not by the launcher"),
        (None, EXIT_3, False, "failed", "exited with code 3 without saying why"),
        (None, 0, False, "failed", "exited with code 0 without saying why"),
    ],
)
def test_an_ending_is_made_of_what_the_worker_said_and_what_the_kernel_says(
    said: Outcome | None, status: int, killed: bool, kind: str, cause: str
) -> None:
    attempt = exit_status.ProcessAttempt("w", 1, pid=7, phase="run", killed=killed, reported=said)

    ended = exit_status.ending(attempt, ChildExited("w", status, peak_bytes=1 << 20))

    assert (ended.kind, ended.cause, ended.pid) == (kind, cause, 7)
    assert ended.exit_code == os.waitstatus_to_exitcode(status)
    assert ended.signal == {KILL: "SIGKILL", SEGV: "SIGSEGV"}.get(status, "")


# Processes that workers or the script start.


def test_sound_31_processes_that_workers_or_the_script_start_can_use_the_clients_they_are_given(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(sys.path))
    program = lp.Program("spawning")
    doubler = program.add_node(lp.CourierNode(spawning_nodes.Doubler), label="doubler")
    for method in ("spawn", "forkserver", "fork", "subprocess"):
        program.add_node(lp.PyClassNode(spawning_nodes.Spawner, doubler, method), label=method)
    program.add_node(lp.PyNode(lp.wait_for_stop), label="keeps")

    with lp.launch(program, "test_mp") as running:
        client = pickle.dumps(courier.Client(running.client("doubler").address))
        child = subprocess.run(
            [sys.executable, "-c", spawning_nodes.CHILD], input=client, stdout=subprocess.PIPE
        )
        running.wait(DEADLINE_S, labels=["spawn", "forkserver", "fork", "subprocess"])

    assert child.stdout == b"8\n"


def test_the_specs_of_all_workers_have_one_dict_of_endpoints_which_is_pickled_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    found: list[WorkerSpec] = []

    def create_process_workers(
        plan: LaunchPlan, workers: list[WorkerSpec], *_: Any, **__: Any
    ) -> None:
        found.extend(workers)

    monkeypatch.setattr(backend, "create_process_workers", create_process_workers)
    program = lp.Program("many")
    for name in ("a", "b"):
        program.add_node(lp.CourierNode(spawning_nodes.Doubler), label=name)

    Launched(program).run.remove()

    a, b = found
    assert a.endpoints is b.endpoints
    assert set(a.endpoints) == {"a-0/courier", "b-0/courier"}
