"""F47–F49, F51–F54: signals to the launching script, from the moment it begins to the moment it ends."""

from __future__ import annotations

import contextlib
import os
import pty
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from tests.faults.backends import both_by_script, everywhere_by_script, on, processes_by_script
from tests.helpers import scripts
from tests.helpers.scripts import read_until
from tests.waiting import runs, until

DEADLINE_S = 60.0
SIGNALS = [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129)]

PREAMBLE = """
import os, signal, sys, threading, time
import launchpad as lp
from tests import nodes

def program_of(node, label="loop"):
    program = lp.Program("signalled")
    program.add_node(node, label=label)
    return program

"""

signals = pytest.mark.parametrize(("number", "code"), SIGNALS, ids=["INT", "TERM", "HUP"])

Start = Callable[..., subprocess.Popen[str]]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Starts a script; what it and its workers print can be read."""
    started: list[subprocess.Popen[str]] = []

    def start(
        body: str, launch_type: str = "local_mp", notice_s: int = 3, **options: object
    ) -> subprocess.Popen[str]:
        process = scripts.start(
            scripts.write(tmp_path, PREAMBLE + body),
            f"--lp_launch_type={launch_type}",
            f"--lp_termination_notice_secs={notice_s}",
            **options,
        )
        started.append(process)
        return process

    yield start
    for process in started:
        process.kill()
        process.wait()
        if process.stdout is not None:
            process.stdout.close()


def descendants(process: subprocess.Popen[str]) -> list[psutil.Process]:
    return psutil.Process(process.pid).children(recursive=True)


def assert_all_end(processes: list[psutil.Process]) -> None:
    until(lambda: not any(map(runs, processes)), DEADLINE_S)


@everywhere_by_script
@signals
def test_f47_f49_a_signal_while_the_script_has_ended_stops_the_program_in_good_order(
    start: Start, launch_type: str, number: signal.Signals, code: int
) -> None:
    process = start("lp.launch(program_of(lp.PyClassNode(nodes.Loop)))", launch_type, notice_s=20)
    read_until(process, "looping")
    below = descendants(process)

    process.send_signal(number)
    rest, _ = process.communicate(timeout=DEADLINE_S)

    assert process.returncode == code, rest
    assert "stopping" in rest
    assert "stopped in good order" in rest
    assert "Traceback" not in rest
    assert_all_end(below)


@both_by_script
@signals
@pytest.mark.parametrize(
    "busy", ["while True: time.sleep(1)", "while True: pass", "running.wait()", "running.stop()"]
)
def test_f47_f49_a_signal_while_the_script_does_something_unwinds_it_and_stops_the_program(
    start: Start, launch_type: str, number: signal.Signals, code: int, busy: str
) -> None:
    body = f"""
class Slow:
    def run(self):
        stop = lp.stop_event()
        print("looping", flush=True)
        stop.wait()
        time.sleep(0.5)
        print("stopped in good order", flush=True)

running = lp.launch(program_of(lp.PyClassNode(Slow)))
while "looping" not in running.logs("loop"):
    time.sleep(0.01)
try:
    print("busy", flush=True)
    {busy}
finally:
    print("unwound", flush=True)
"""
    process = start(body, launch_type)
    read_until(process, "busy")

    process.send_signal(number)
    rest, _ = process.communicate(timeout=DEADLINE_S)

    assert process.returncode == code or busy == "running.stop()", rest
    assert "unwound" in rest
    assert "Traceback" not in rest


@on("local_mt", "local_mp", "ray")  # of a cluster in tests/kubernetes/test_ends.py
def test_f48_a_second_ctrl_c_does_not_wait_for_who_ignores_the_first(
    start: Start, launch_type: str
) -> None:
    body = """
class Stubborn:
    def run(self):
        print("stubborn", lp.stop_event().is_set(), flush=True)
        while True:
            time.sleep(0.01)
lp.launch(program_of(lp.PyClassNode(Stubborn)))
"""
    process = start(body, launch_type, notice_s=1000)
    read_until(process, "stubborn")

    process.send_signal(signal.SIGINT)
    read_until(process, "stopping")
    process.send_signal(signal.SIGINT)
    rest, _ = process.communicate(timeout=DEADLINE_S)

    assert process.returncode == 130, rest
    assert "Traceback" not in rest


def test_f48_a_second_ctrl_c_ends_all_by_force_and_leaves_nothing(start: Start) -> None:
    body = """
class Stubborn:
    def run(self):
        os.posix_spawn("/bin/sleep", ["sleep", "1000"], {})
        print("stubborn", lp.stop_event().is_set(), flush=True)
        while True:
            time.sleep(0.01)
lp.launch(program_of(lp.PyClassNode(Stubborn)))
"""
    process = start(body)
    read_until(process, "stubborn")
    below = descendants(process)

    process.send_signal(signal.SIGINT)
    read_until(process, "stopping")
    process.send_signal(signal.SIGINT)
    rest, _ = process.communicate(timeout=DEADLINE_S)

    assert process.returncode == 130, rest
    assert "Traceback" not in rest.replace("Current thread", "")
    assert len(below) == 4  # subreaper, forkserver, worker, and what that has started
    assert_all_end(below)


@both_by_script
def test_f49_a_handler_of_the_scripts_own_stays_in_charge(start: Start, launch_type: str) -> None:
    body = """
heard = threading.Event()
signal.signal(signal.SIGTERM, lambda number, frame: heard.set())
running = lp.launch(program_of(lp.PyClassNode(nodes.Loop)))
while not heard.is_set():
    time.sleep(0.01)
print("heard; done:", running.is_done, flush=True)
running.stop()
"""
    process = start(body, launch_type)
    read_until(process, "looping")

    process.send_signal(signal.SIGTERM)
    rest, _ = process.communicate(timeout=DEADLINE_S)

    assert "heard; done: False" in rest
    assert process.returncode == 0, rest


def test_f49_after_its_programs_a_script_is_killed_by_sigterm_as_ever(start: Start) -> None:
    body = """
lp.launch(program_of(lp.PyNode(print, "short"), "short")).wait()
print("alone", flush=True)
time.sleep(1000)
"""
    process = start(body)
    read_until(process, "alone")

    def is_killed() -> bool:
        # Again if need be: before 3.13 CPython may overlook a signal that comes just as the main thread gets
        # the GIL back, until it runs once more; and this one sleeps.
        process.send_signal(signal.SIGTERM)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(1.0)
        return process.returncode is not None

    until(is_killed, DEADLINE_S)
    assert process.returncode == -signal.SIGTERM


@both_by_script
def test_f49_a_signal_while_the_script_calls_a_method_does_not_cut_the_method_short(
    start: Start, launch_type: str
) -> None:
    body = """
class Books:
    def __init__(self):
        self.entered = self.left = 0
    def enter(self):
        self.entered += 1
        for _ in range(1000):
            pass
        self.left += 1
        return self.entered, self.left

client = lp.launch(program_of(lp.CourierNode(Books), "books")).client("books")
try:
    print("calling", client.enter(), flush=True)
    while True:
        client.enter()
finally:
    try:
        print(f"in order: {len(set(client.enter())) == 1}", flush=True)
    except Exception:
        print("the server has ended")
"""
    process = start(body, launch_type)
    read_until(process, "calling")

    process.send_signal(signal.SIGTERM)
    rest, _ = process.communicate(timeout=DEADLINE_S)

    assert process.returncode == 143, rest
    assert "in order: True" in rest or "the server has ended" in rest, rest


@everywhere_by_script
def test_f54_a_program_is_stopped_while_it_starts(start: Start, launch_type: str) -> None:
    body = """
class Slow:
    def __init__(self):
        print("building", flush=True)
        time.sleep(1000)
    def run(self): ...
lp.launch(program_of(lp.PyClassNode(Slow)))
"""
    process = start(body, launch_type)
    read_until(process, "building")
    below = descendants(process)

    process.send_signal(signal.SIGINT)
    rest, _ = process.communicate(timeout=DEADLINE_S)

    assert process.returncode == 130, rest
    assert "Traceback" not in rest
    assert_all_end(below)


@everywhere_by_script
def test_f47_ctrl_c_in_the_middle_of_launch_stops_what_it_started(
    start: Start, launch_type: str
) -> None:
    body = """
from launchpad.launch import running
start = running.Running.start
def start_and_press(*arguments):
    started = start(*arguments)
    signal.raise_signal(signal.SIGINT)
    print("launch goes on", flush=True)
    return started
running.Running.start = start_and_press
lp.launch(program_of(lp.PyClassNode(nodes.Loop)))
print("never")
"""
    process = start(body, launch_type)
    output, _ = process.communicate(timeout=DEADLINE_S)

    assert process.returncode == 130, output
    assert "launch goes on" in output
    assert "never" not in output
    assert "Traceback" not in output


def test_f47_ctrl_c_in_a_callback_of_the_interpreter_is_not_lost(start: Start) -> None:
    body = """
import weakref
class Thing: pass
thing = Thing()
reference = weakref.ref(thing, lambda _: signal.raise_signal(signal.SIGINT))
del thing
time.sleep(0.1)
print("never")
"""
    process = start(body)
    output, _ = process.communicate(timeout=DEADLINE_S)

    assert process.returncode in (130, -signal.SIGINT)  # to a shell they are the same
    assert output == ""


def test_other_exceptions_of_a_script_are_printed_as_ever(start: Start) -> None:
    process = start("raise ValueError('boom')")
    output, _ = process.communicate(timeout=DEADLINE_S)

    assert process.returncode == 1
    assert "Traceback" in output
    assert "ValueError: boom" in output


def test_f51_the_launcher_is_killed_at_many_moments_of_its_start_and_nothing_is_left(
    start: Start, tmp_path: Path
) -> None:
    body = """
class Parent:
    def run(self):
        os.posix_spawn("/bin/sleep", ["sleep", "1000"], {}, setsid=True)
        lp.wait_for_stop()
lp.launch(program_of(lp.PyClassNode(Parent)), terminal="output_to_files")
"""
    runtime = tmp_path / f"launchpad-{os.getuid()}"
    env = scripts.environment(TMPDIR=str(tmp_path))
    for variable in ("XDG_RUNTIME_DIR", "LAUNCHPAD_RUNTIME_DIR"):
        env.pop(variable, None)

    def is_here(process: psutil.Process) -> bool:
        try:
            return process.cwd() == str(tmp_path) and process.status() != psutil.STATUS_ZOMBIE
        except psutil.Error:
            return False

    for delay_s in (0.05, 0.1, 0.15, 0.2, 0.25, 0.3, 0.35, 0.4, 0.5, 0.6):
        process = start(body, cwd=tmp_path, env=env)
        time.sleep(delay_s)  # no order: any moment will do
        process.kill()
        process.wait()

        until(lambda: not any(is_here(p) for p in psutil.process_iter()))
        until(lambda: not list(runtime.rglob("*")))


@processes_by_script
def test_f52_ctrl_z_stops_the_launcher_and_no_worker(start: Start, launch_type: str) -> None:
    body = """
class Ticks:
    def run(self):
        stop = lp.stop_event()
        while not stop.wait(0.01):
            with open(sys.argv[0] + ".ticks", "a") as file:
                file.write(".")
            print("tick", flush=True)
lp.launch(program_of(lp.PyClassNode(Ticks)))
"""
    process = start(body, launch_type, process_group=0)
    read_until(process, "tick")
    ticks = Path(str(process.args[1]) + ".ticks")  # type: ignore[index]

    process.send_signal(signal.SIGTSTP)
    launcher = psutil.Process(process.pid)
    until(lambda: launcher.status() == psutil.STATUS_STOPPED)
    before = ticks.stat().st_size
    until(lambda: ticks.stat().st_size > before + 10)
    process.send_signal(signal.SIGCONT)
    read_until(process, "tick")
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=DEADLINE_S)

    assert process.returncode == 130


@everywhere_by_script
def test_f53_a_closed_terminal_ends_the_program(start: Start, launch_type: str) -> None:
    ours, theirs = pty.openpty()
    body = """
import fcntl, termios
fcntl.ioctl(0, termios.TIOCSCTTY, 0)
lp.launch(program_of(lp.PyClassNode(nodes.Loop)))
"""
    process = start(
        body, launch_type, stdin=theirs, stdout=theirs, stderr=theirs, start_new_session=True
    )
    os.close(theirs)
    seen = b""
    while b"looping" not in seen:
        seen += os.read(ours, 1024)
    below = descendants(process)

    os.close(ours)

    assert process.wait(DEADLINE_S) == 129
    assert_all_end(below)


@both_by_script
def test_f53_a_program_whose_output_is_not_read_any_more_runs_to_its_end_and_never_spins(
    start: Start, launch_type: str
) -> None:
    body = """
class Prints:
    def run(self):
        print("first", flush=True)
        for _ in range(100):
            print("more", flush=True)
            time.sleep(0.01)
lp.launch(program_of(lp.PyClassNode(Prints))).wait()
os._exit(7 if sum(os.times()[:2]) < 10 else 8)
"""
    process = start(body, launch_type)
    read_until(process, "first")
    assert process.stdout is not None

    process.stdout.close()

    assert process.wait(DEADLINE_S) == 7
