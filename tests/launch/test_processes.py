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
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

import psutil
import pytest

import launchpad as lp
from launchpad import courier
from launchpad.events import Ended, Event, ProcessStarted, Ready, StopRequested, Waiting
from launchpad.launch.backends.backend import Workers
from launchpad.launch.backends.processes import exit_status
from launchpad.launch.backends.processes.backend import Processes, ProcessWorkers
from launchpad.launch.backends.processes.messages import ChildExited
from launchpad.launch.planning import planner
from launchpad.launch.rundir.directory import RunDirectory
from launchpad.outcome import Outcome
from tests.helpers import spawning_nodes
from tests.waiting import until

ROOT = Path(__file__).parents[2]
DEADLINE_S = 20.0
KILLED_WITHIN_S = 0.25

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
            self.workers.start(worker.name, attempt)
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


@pytest.fixture
def launch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Launch]:
    """Makes a program of nodes, each a group of its own named by its keyword, and starts it."""
    monkeypatch.setenv("LAUNCHPAD_LOGGING_DIR", str(tmp_path))
    launched: list[Launched] = []

    def start(local: dict[str, lp.PythonProcess] | None = None, **nodes: Any) -> Launched:
        program = lp.Program("processes")
        for label, node in nodes.items():
            program.add_node(lp.PyNode(node) if callable(node) else node, label=label)
        launched.append(Launched(program, local))
        return launched[-1].start()

    yield start
    for one in launched:
        one.close()


def is_dead(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


def sleep_forever() -> None:
    time.sleep(1000)


class Raises:
    """A pickle that cannot be read in the worker."""

    def __reduce__(self) -> Any:
        return __import__, ("there_is_no_such_module",)


# Beginnings and ends.


def test_a_worker_reports_that_it_is_ready_and_that_it_has_ended(launch: Launch) -> None:
    launched = launch(worker=lambda: None)

    assert launched.next(Ready) == Ready("worker-0", 1, runs=True)
    ended = launched.outcome()
    assert (ended.worker, ended.kind, ended.exit_code) == ("worker-0", "succeeded", 0)
    assert ended.pid != os.getpid()


def test_a_worker_s_process_is_told_of_before_it_is_ready(launch: Launch) -> None:
    launched = launch(worker=lambda: print(os.getpid(), flush=True))

    started = launched.next(ProcessStarted)
    launched.next(Ready)

    assert (started.worker, started.attempt) == ("worker-0", 1)
    assert started.pid == int(launched.wait_for_line("worker-0"))


def test_a_server_is_ready_without_anything_to_run_and_serves_until_asked(launch: Launch) -> None:
    class Server:
        def ping(self) -> int:
            return os.getpid()

    launched = launch(server=lp.CourierNode(Server))

    assert launched.next(Ready).runs is False
    with lp.courier.Client(launched.plan.endpoints["server-0/courier"]) as client:
        assert client.ping() != os.getpid()
    launched.workers.request_stop("server-0")
    assert launched.outcome().kind == "stopped"


def test_every_start_ends_once_and_later_attempts_have_their_number(launch: Launch) -> None:
    def tell() -> None:
        raise RuntimeError(f"attempt {lp.current().attempt}")

    launched = launch(worker=tell)
    first = launched.outcome()
    launched.start(attempt=2)
    second = launched.outcome()

    assert (first.attempt, first.cause) == (1, "RuntimeError: attempt 1")
    assert (second.attempt, second.cause) == (2, "RuntimeError: attempt 2")
    assert launched.reports.empty()


def test_workers_know_who_they_are_and_where_the_others_are(launch: Launch) -> None:
    class Server:
        def name(self) -> str:
            return lp.current().name

    program = lp.Program("two")
    server = program.add_node(lp.CourierNode(Server), label="server")
    program.add_node(lp.PyNode(lambda s: print(s.name(), flush=True), server), label="client")
    launched = Launched(program).start()
    try:
        assert launched.wait_for_line("client-0") == "server-0"
    finally:
        launched.close()


# Failures are named, with the phase they happened in.


def test_an_exception_in_run_is_a_failure_with_its_traceback(launch: Launch) -> None:
    def fail() -> None:
        raise ValueError("boom")

    launched = launch(worker=fail)

    ended = launched.outcome()
    assert (ended.kind, ended.phase, ended.cause) == ("failed", "run", "ValueError: boom")
    assert ended.exit_code == 1
    assert "in fail" in ended.traceback
    assert "ValueError: boom" in launched.log("worker-0")


def test_an_exception_in_a_constructor_fails_in_phase_init(launch: Launch) -> None:
    class Broken:
        def __init__(self) -> None:
            raise ValueError("boom")

    ended = launch(worker=lp.CourierNode(Broken)).outcome()

    assert (ended.kind, ended.phase, ended.cause) == ("failed", "init", "ValueError: boom")


@pytest.mark.timing
def test_an_import_error_fails_in_phase_import_within_a_second(launch: Launch) -> None:
    began = time.monotonic()
    ended = launch(worker=lp.PyNode(print, Raises())).outcome()

    assert (ended.kind, ended.phase) == ("failed", "import")
    assert "there_is_no_such_module" in ended.cause
    assert "sys.path" in ended.hint
    assert time.monotonic() - began < 1


def test_a_killed_worker_is_named_with_its_signal_and_memory(launch: Launch) -> None:
    ended = launch(worker=lambda: os.kill(os.getpid(), signal.SIGKILL)).outcome()

    assert (ended.kind, ended.phase) == ("failed", "run")
    assert ended.cause == "killed by SIGKILL, not by the launcher"
    assert (ended.signal, ended.exit_code) == ("SIGKILL", -signal.SIGKILL)
    assert "peak memory" in ended.hint


def test_a_segfault_is_named_and_its_stack_is_in_the_log(launch: Launch) -> None:
    def crash() -> None:
        import ctypes

        ctypes.string_at(0)

    launched = launch(worker=crash)

    assert launched.outcome().cause == "killed by SIGSEGV, not by the launcher"
    assert "in crash" in launched.log("worker-0")


def test_a_process_that_just_exits_fails_in_the_phase_it_had_reached(launch: Launch) -> None:
    class Exits:
        def __init__(self) -> None:
            os._exit(3)

    ended = launch(worker=lp.CourierNode(Exits)).outcome()

    assert (ended.kind, ended.phase) == ("failed", "init")
    assert (ended.cause, ended.exit_code) == ("exited with code 3 without saying why", 3)


@pytest.mark.parametrize(("code", "kind"), [(0, "succeeded"), (3, "failed")])
def test_sys_exit_succeeds_with_0_and_fails_with_anything_else(
    launch: Launch, code: int, kind: str
) -> None:
    assert launch(worker=lambda: sys.exit(code)).outcome().kind == kind


def test_an_interpreter_that_does_not_exist_fails_in_phase_start(launch: Launch) -> None:
    ended = launch({"worker": lp.PythonProcess(python="/nowhere/python")}, worker=print).outcome()

    assert (ended.kind, ended.phase, ended.error_type) == ("failed", "start", "FileNotFoundError")
    assert "/nowhere/python" in ended.cause


def test_a_forkserver_that_cannot_be_started_is_a_launch_error_that_leaves_nothing(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("LAUNCHPAD_LOGGING_DIR", str(tmp_path))
    program = lp.make_program(lp.PyNode(print))
    run = RunDirectory.create("p")
    monkeypatch.setattr(sys, "executable", "/nowhere/python")

    with pytest.raises(lp.LaunchError, match="/nowhere/python"):
        Processes().create_workers(planner.plan(program, Processes(), "local_mp"), run, print)

    run.remove()


def test_out_of_descriptors_every_worker_fails_in_phase_start_and_the_limit_is_named(
    tmp_path: Path,
) -> None:
    script = """
import resource
resource.setrlimit(resource.RLIMIT_NOFILE, (32, 32))
with_workers(60)
causes = {(o.outcome.phase, o.outcome.hint) for o in (reports.get() for _ in range(60))
          if type(o).__name__ == "Ended" and o.outcome.kind == "failed"}
print(causes)
workers.close()
"""
    done = run_script(script, tmp_path)

    assert "the limit on open files of one process (ulimit -n)" in done, done
    assert "'start'" in done, done


# Requests.


@pytest.mark.parametrize("blocks", ["sleep", "event", "read", "compute"])
def test_a_run_that_never_asked_about_stopping_is_interrupted(launch: Launch, blocks: str) -> None:
    def run() -> None:
        import threading

        ways: dict[str, Callable[[], Any]] = {
            "sleep": lambda: time.sleep(1000),
            "event": lambda: threading.Event().wait(),
            "read": lambda: os.read(os.pipe()[0], 1),
            "compute": lambda: [None for i in iter(int, 1)],
        }
        try:
            print("running", flush=True)
            ways[blocks]()
        finally:
            print("cleaned up", flush=True)

    launched = launch(worker=run)
    assert launched.wait_for_line("worker-0") == "running"
    launched.workers.request_stop("worker-0")

    ended = launched.outcome()
    assert (ended.kind, ended.exit_code) == ("stopped", 0)
    assert launched.log("worker-0") == "running\ncleaned up\n"


def test_a_run_that_waits_for_the_stop_is_not_interrupted(launch: Launch) -> None:
    def run() -> None:
        stop = lp.stop_event()
        print("running", flush=True)
        stop.wait()
        print("stopped in my own time")

    launched = launch(worker=run)
    launched.wait_for_line("worker-0")
    launched.workers.request_stop("worker-0")

    assert launched.outcome().kind == "stopped"
    assert launched.log("worker-0") == "running\nstopped in my own time\n"


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
    launched.workers.request_stop("worker-0")
    until(lambda: "no\n" in launched.log("worker-0"))

    launched.workers.kill("worker-0")

    ended = launched.outcome()
    assert (ended.kind, ended.cause) == ("stopped", "did not stop in time; killed")
    assert "in never_stops" in launched.log("worker-0")
    assert "in execute_in_order" not in launched.log("worker-0")  # a frame of the forkserver


def test_a_request_for_a_worker_that_has_ended_is_passed_over(launch: Launch) -> None:
    launched = launch(worker=lambda: None)
    launched.outcome()

    launched.workers.request_stop("worker-0")
    launched.workers.kill("worker-0")
    launched.workers.announce_gone("worker-0", "why")

    assert launched.reports.empty()


def test_a_failure_that_is_told_is_known_to_all_others(launch: Launch) -> None:
    def look() -> None:
        while not (why := lp.current().gone_reason("learner-0")):
            time.sleep(0.001)
        print(why)

    launched = launch(one=look, two=look)
    launched.next(Ready)
    launched.next(Ready)
    launched.workers.announce_gone("learner-0", "it was too warm")

    assert {launched.outcome().kind, launched.outcome().kind} == {"succeeded"}
    assert launched.log("one-0") == launched.log("two-0") == "it was too warm\n"


def test_stop_and_waiting_are_reported(launch: Launch) -> None:
    def run() -> None:
        lp.current().report(Waiting(lp.current().name, "learner-0"))
        lp.stop("enough")

    launched = launch(worker=run)

    assert launched.next(Waiting) == Waiting("worker-0", "learner-0")
    assert launched.next(StopRequested) == StopRequested("worker-0", "enough")


# What a worker's process is like.


def test_everything_printed_is_in_the_log_whichever_way_it_was_written(launch: Launch) -> None:
    def run() -> None:
        print("by print")
        print("by print to stderr", file=sys.stderr)
        os.write(1, b"by write\n")
        os.write(2, b"by write to stderr\n")
        subprocess.run(["echo", "by a child"], check=True)
        print("by print, unfinished", end="")

    launched = launch(worker=run)

    assert launched.outcome().kind == "succeeded"
    assert launched.log("worker-0").splitlines() == [
        "by print",
        "by print to stderr",
        "by write",
        "by write to stderr",
        "by a child",
        "by print, unfinished",
    ]


def test_environment_and_flags_are_there_before_anything_is_imported(launch: Launch) -> None:
    class Sees:
        def __reduce__(self) -> Any:
            return os.getenv, ("COLOR",)

    def show(color: object) -> None:
        print(color, sys.argv[-1])

    process = lp.PythonProcess(args={"seed": 7}, env={"COLOR": "red"})
    launched = launch({"worker": process}, worker=lp.PyNode(show, Sees()))

    assert launched.outcome().kind == "succeeded"
    assert launched.log("worker-0") == "red --seed=7\n"


def test_an_environment_that_the_interpreter_reads_gets_an_interpreter_of_its_own(
    launch: Launch,
) -> None:
    process = lp.PythonProcess(args={"seed": 7}, env={"PYTHONUTF8": "1", "PYTHONHASHSEED": "0"})
    launched = launch(
        {"worker": process},
        worker=lambda: print(sys.flags.utf8_mode, sys.flags.hash_randomization, sys.argv[-1]),
    )

    assert launched.outcome().kind == "succeeded"
    assert launched.log("worker-0") == "1 0 --seed=7\n"


def test_another_interpreter_is_used_where_it_is_asked_for(launch: Launch, tmp_path: Path) -> None:
    python = tmp_path / "python"
    python.write_text(f'#!/bin/sh\nVIA=other exec {sys.executable} "$@"\n')
    python.chmod(0o755)

    launched = launch(
        {"worker": lp.PythonProcess(python=str(python))}, worker=lambda: print(os.environ["VIA"])
    )

    assert launched.outcome().kind == "succeeded", launched.log("worker-0")
    assert launched.log("worker-0") == "other\n"


def test_a_worker_is_a_plain_process_with_default_signals_and_few_descriptors(
    launch: Launch,
) -> None:
    def links() -> list[str]:
        found = []
        for fd in os.listdir("/proc/self/fd"):
            try:
                found.append(os.readlink(f"/proc/self/fd/{fd}").split(":")[0])
            except OSError:
                continue
        return found

    def run() -> None:
        import __main__

        print(sorted(n for n in vars(__main__) if not n.startswith("__")))
        print(signal.getsignal(signal.SIGINT) is signal.default_int_handler)
        print(signal.getsignal(signal.SIGTERM) == signal.SIG_DFL)
        print(os.read(0, 1), os.getpgrp() == os.getpid())
        print(sum(link == "socket" for link in links()))

    launched = launch(other=sleep_forever, worker=run)

    assert launched.outcome().kind == "succeeded"
    assert launched.log("worker-0").splitlines() == ["[]", "True", "True", "b'' True", "1"]


def test_a_worker_has_the_limits_of_the_launcher_and_its_own_name(launch: Launch) -> None:
    def run() -> None:
        import resource

        print(resource.getrlimit(resource.RLIMIT_NOFILE))
        print(psutil.Process().name())

    launched = launch(worker=run)

    assert launched.outcome().kind == "succeeded"
    limits, name = launched.log("worker-0").splitlines()
    assert limits == str(resource.getrlimit(resource.RLIMIT_NOFILE))
    assert sys.platform != "linux" or name == "worker-0"


def test_functions_registered_with_atexit_are_called(launch: Launch) -> None:
    def run() -> None:
        import atexit

        atexit.register(print, "good-bye")

    launched = launch(worker=run)

    assert launched.outcome().kind == "succeeded"
    assert launched.log("worker-0") == "good-bye\n"


def test_threads_are_waited_for_before_the_functions_registered_with_atexit(
    launch: Launch,
) -> None:
    def run() -> None:
        import atexit
        import concurrent.futures
        import threading

        atexit.register(print, "good-bye")
        main_is_over = threading.Event()
        threading.Thread(
            target=lambda: (lp.wait_for_stop(), print("thread", flush=True), main_is_over.set())
        ).start()
        concurrent.futures.ThreadPoolExecutor(1).submit(
            lambda: (main_is_over.wait(), print("executor", flush=True))
        )

    launched = launch(worker=run)

    assert launched.outcome().kind == "succeeded"
    assert launched.log("worker-0") == "thread\nexecutor\ngood-bye\n"


def test_threads_of_a_worker_that_was_asked_to_stop_are_waited_for(launch: Launch) -> None:
    def run() -> None:
        import threading

        def save() -> None:
            main.join()
            print("saved")

        main = threading.main_thread()
        threading.Thread(target=save).start()
        print("running", flush=True)
        lp.wait_for_stop()

    launched = launch(worker=run)
    launched.wait_for_line("worker-0")
    launched.workers.request_stop("worker-0")

    assert launched.outcome().kind == "stopped"
    assert launched.log("worker-0") == "running\nsaved\n"


@pytest.mark.parametrize("how", ["closed", "None"])
def test_a_failure_is_told_whatever_has_become_of_the_standard_streams(
    launch: Launch, how: str
) -> None:
    def fail() -> None:
        for name in ("stdout", "stderr"):
            if how == "None":
                setattr(sys, name, None)
            else:
                getattr(sys, name).close()
        raise ValueError("boom")

    ended = launch(worker=fail).outcome()

    assert (ended.kind, ended.phase, ended.cause) == ("failed", "run", "ValueError: boom")


def test_a_worker_that_changes_its_process_can_still_be_stopped(launch: Launch) -> None:
    def run() -> None:
        os.chdir("/")
        os.closerange(0, 3)
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        time.sleep(1000)

    launched = launch(worker=run)
    launched.next(Ready)
    launched.workers.request_stop("worker-0")

    assert launched.outcome().kind == "stopped"


def test_a_payload_of_100_mb_arrives(launch: Launch) -> None:
    data = os.urandom(1 << 20) * 100
    launched = launch(worker=lp.PyNode(lambda data: print(len(data)), data))

    assert launched.outcome().kind == "succeeded"
    assert launched.log("worker-0") == f"{100 << 20}\n"


# Nobody outlives what they belong to.


def starts_a_sleeper(new_session: bool = False) -> Callable[[], None]:
    def run() -> None:
        sleeper = subprocess.Popen(["sleep", "1000"], start_new_session=new_session)
        print(os.getpid(), sleeper.pid, flush=True)
        time.sleep(1000)

    return run


@pytest.mark.timing
def test_what_a_worker_started_dies_with_it(launch: Launch) -> None:
    launched = launch(worker=starts_a_sleeper())
    worker, sleeper = map(int, launched.wait_for_line("worker-0").split())

    os.kill(worker, signal.SIGKILL)
    launched.outcome()

    until(lambda: is_dead(sleeper), within_s=1)


@pytest.mark.skipif(sys.platform != "linux", reason="orphans are adopted on Linux only")
def test_what_a_worker_started_and_left_its_process_group_dies_with_it_and_nothing_else(
    launch: Launch,
) -> None:
    launched = launch(
        one=starts_a_sleeper(new_session=True), two=starts_a_sleeper(new_session=True)
    )
    worker, sleeper = map(int, launched.wait_for_line("one-0").split())
    _, other = map(int, launched.wait_for_line("two-0").split())

    os.kill(worker, signal.SIGKILL)
    launched.outcome()

    until(lambda: is_dead(sleeper), within_s=5)
    assert not is_dead(other)


@pytest.mark.skipif(sys.platform != "linux", reason="orphans are adopted on Linux only")
def test_what_left_its_process_group_dies_with_the_launch(launch: Launch) -> None:
    launched = launch(worker=starts_a_sleeper(new_session=True))
    _, sleeper = map(int, launched.wait_for_line("worker-0").split())

    launched.workers.close()

    assert is_dead(sleeper)


@pytest.mark.timing
def test_closing_ends_workers_that_still_run(launch: Launch) -> None:
    launched = launch(worker=starts_a_sleeper())
    pids = [int(pid) for pid in launched.wait_for_line("worker-0").split()]

    launched.workers.close()

    assert launched.outcome().kind == "stopped"
    until(lambda: all(map(is_dead, pids)), within_s=1)


@pytest.mark.timing
def test_when_the_forkserver_dies_all_workers_are_lost_and_none_survives(launch: Launch) -> None:
    launched = launch(one=starts_a_sleeper(), two=starts_a_sleeper())
    pids = [int(p) for w in ("one-0", "two-0") for p in launched.wait_for_line(w).split()]
    for _ in range(2):
        launched.next(Ready)  # which its forkserver passes on a moment after the worker has begun

    launched.forkserver.kill()

    lost = [launched.outcome(), launched.outcome()]
    assert {o.worker for o in lost} == {"one-0", "two-0"}
    assert {(o.kind, o.phase) for o in lost} == {("lost", "run")}
    assert "the forkserver of all workers was killed by SIGKILL" in lost[0].cause
    until(lambda: all(map(is_dead, pids)), within_s=1)
    assert launched.reports.empty()


def test_closing_ends_also_a_forkserver_that_does_not_answer(launch: Launch) -> None:
    launched = launch(worker=starts_a_sleeper(new_session=True))
    pids = [int(pid) for pid in launched.wait_for_line("worker-0").split()]
    subreaper, forkserver = launched.subreaper, launched.forkserver
    forkserver.suspend()

    launched.workers.close()

    assert all(map(is_dead, [*pids, subreaper.pid, forkserver.pid]))


def test_a_worker_started_after_the_forkserver_died_is_lost(launch: Launch) -> None:
    launched = launch(worker=sleep_forever)
    launched.next(Ready)
    launched.forkserver.kill()
    launched.outcome()

    launched.start(attempt=2)

    ended = launched.outcome()
    assert (ended.kind, ended.phase, ended.attempt) == ("lost", "start", 2)


@pytest.mark.timing
@pytest.mark.parametrize("forks", [False, True], ids=["plain", "forked a child of its own"])
def test_f51_when_the_launcher_is_killed_nothing_is_left_250_ms_later(
    tmp_path: Path, forks: bool
) -> None:
    script = f"""
import time
with_workers(4)
n_ready = 0
while n_ready < 4: n_ready += type(reports.get()).__name__ == "Ready"
if {forks} and os.fork() == 0:
    time.sleep(1)
    os._exit(0)
print(os.getpid(), workers._subreaper.pid, *(a.pid for a in workers._attempts.values()))
print(run.runtime, flush=True)
time.sleep(1000)
"""
    with start_script(script, tmp_path) as launcher:
        assert launcher.stdout is not None
        pids = [int(pid) for pid in launcher.stdout.readline().split()]
        runtime = Path(launcher.stdout.readline().strip())
        assert len(pids) == 6
        assert list(runtime.iterdir())

        launcher.kill()
        until(lambda: all(map(is_dead, pids)) and not runtime.exists(), within_s=KILLED_WITHIN_S)


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


# Scripts: launchers that are processes of their own.

PREAMBLE = """
import os, sys
sys.path.insert(0, {root!r})
import queue, time
import launchpad as lp
from launchpad import courier
from launchpad.launch.planning import planner
from launchpad.launch.backends.processes.backend import Processes
from launchpad.launch.rundir.directory import RunDirectory

def with_workers(count):
    global workers, reports, run
    program = lp.Program("script")
    for _ in range(count):
        program.add_node(lp.PyNode(time.sleep, 1000), label="w")
    plan = planner.plan(program, Processes(), "local_mp")
    run, reports = RunDirectory.create("script"), queue.SimpleQueue()
    workers = Processes().create_workers(plan, run, reports.put)
    run.make_runtime()
    for worker in plan.workers:
        workers.start(worker.name, 1)
"""


def start_script(script: str, logs: Path) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", PREAMBLE.format(root=str(ROOT)) + script],
        env={**os.environ, "LAUNCHPAD_LOGGING_DIR": str(logs)},
        stdout=subprocess.PIPE,
        text=True,
    )


def run_script(script: str, logs: Path) -> str:
    with start_script(script, logs) as process:
        return process.communicate(timeout=DEADLINE_S)[0]


@pytest.mark.parametrize("method", ["spawn", "forkserver", "fork", "subprocess"])
def test_sound_31_a_process_that_a_worker_starts_can_use_the_client_that_it_is_given(
    method: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(sys.path))
    program = lp.Program("spawning")
    doubler = program.add_node(lp.CourierNode(spawning_nodes.Doubler), label="doubler")
    program.add_node(lp.PyClassNode(spawning_nodes.Spawner, doubler, method), label="spawner")

    lp.testing.run(program, launch_type="test_mp")


def test_sound_31_a_process_that_the_script_starts_can_use_its_clients(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(sys.path))
    program = lp.Program("serving")
    program.add_node(lp.CourierNode(spawning_nodes.Doubler), label="doubler")

    with lp.launch(program, "test_mp") as running:
        address = running.client("doubler").address
        client = pickle.dumps(courier.Client(address))
        child = subprocess.run(
            [sys.executable, "-c", spawning_nodes.CHILD], input=client, stdout=subprocess.PIPE
        )

    assert child.stdout == b"8\n"
