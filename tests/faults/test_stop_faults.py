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

from tests.faults.backends import both_by_script
from tests.helpers import scripts
from tests.helpers.scripts import read_until
from tests.waiting import runs, until

DEADLINE_S = 60.0
CODES = {signal.SIGINT: 130, signal.SIGTERM: 143, signal.SIGHUP: 129}

PREAMBLE = """
import os, signal, sys, threading, time
import launchpad as lp
from tests import nodes

def program_of(node, label="loop"):
    program = lp.Program("signalled")
    program.add_node(node, label=label)
    return program

"""

Start = Callable[..., subprocess.Popen[str]]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Starts a script; what it and its workers print can be read."""
    with scripts.started() as begin:

        def start(
            body: str, launch_type: str = "local_mp", notice_s: int = 3, **options: object
        ) -> subprocess.Popen[str]:
            command = scripts.write(tmp_path, PREAMBLE + body)
            flags = f"--lp_launch_type={launch_type}", f"--lp_termination_notice_secs={notice_s}"
            return begin(command, *flags, **options)

        yield start


def end_by(process: subprocess.Popen[str], number: signal.Signals) -> str:
    """Sends the signal, waits for the end, and returns what is printed from then on."""
    process.send_signal(number)
    return process.communicate(timeout=DEADLINE_S)[0]


def descendants(process: subprocess.Popen[str]) -> list[psutil.Process]:
    return psutil.Process(process.pid).children(recursive=True)


def assert_all_end(processes: list[psutil.Process]) -> None:
    until(lambda: not any(map(runs, processes)), DEADLINE_S)


@pytest.mark.parametrize(
    ("launch_type", "number"),
    [
        ("local_mt", signal.SIGINT),
        ("local_mp", signal.SIGINT),
        ("local_mp", signal.SIGTERM),
        ("local_mp", signal.SIGHUP),
        ("ray", signal.SIGTERM),  # of a cluster in tests/kubernetes/test_ends.py
    ],
)
def test_f47_f49_a_signal_stops_the_program_in_good_order(
    start: Start, launch_type: str, number: signal.Signals
) -> None:
    process = start("lp.launch(program_of(lp.PyClassNode(nodes.Loop)))", launch_type, notice_s=20)
    read_until(process, "looping")
    below = descendants(process)

    rest = end_by(process, number)

    assert process.returncode == CODES[number], rest
    assert "stopping" in rest
    assert "stopped in good order" in rest
    assert "Traceback" not in rest
    assert_all_end(below)


@pytest.mark.parametrize(
    ("launch_type", "number", "busy"),
    [
        ("local_mp", signal.SIGINT, "running.wait()"),
        ("local_mp", signal.SIGTERM, "while True: pass"),
        ("local_mp", signal.SIGHUP, "while True: time.sleep(1)"),
        ("local_mp", signal.SIGINT, "running.stop()"),
        ("local_mt", signal.SIGTERM, "while True: time.sleep(1)"),
        ("local_mt", signal.SIGINT, "while True: pass"),
    ],
)
def test_f47_f49_a_signal_while_the_script_is_busy_unwinds_it(
    start: Start, launch_type: str, number: signal.Signals, busy: str
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

    rest = end_by(process, number)

    assert process.returncode == CODES[number] or busy == "running.stop()", rest
    assert "unwound" in rest
    assert "Traceback" not in rest


@pytest.mark.parametrize(
    ("launch_type", "begins"),
    [
        ("local_mt", ""),
        ("local_mp", 'os.posix_spawn("/bin/sleep", ["sleep", "1000"], {})'),
        ("ray", ""),  # of a cluster in tests/kubernetes/test_ends.py
    ],
)
def test_f48_a_second_ctrl_c_ends_by_force_and_leaves_nothing(
    start: Start, launch_type: str, begins: str
) -> None:
    body = f"""
class Stubborn:
    def run(self):
        {begins}
        print("stubborn", lp.stop_event().is_set(), flush=True)
        while True:
            time.sleep(0.01)
lp.launch(program_of(lp.PyClassNode(Stubborn)))
"""
    process = start(body, launch_type, notice_s=1000)
    read_until(process, "stubborn")
    below = descendants(process)

    process.send_signal(signal.SIGINT)
    read_until(process, "stopping")
    rest = end_by(process, signal.SIGINT)

    assert process.returncode == 130, rest
    assert "Traceback" not in rest.replace("Current thread", "")
    if begins:  # there are the subreaper, the forkserver, the worker, and what that has started
        assert len(below) == 4
    assert_all_end(below)


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


def test_f49_a_signal_while_the_script_calls_a_method_does_not_cut_it_short(start: Start) -> None:
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
    process = start(body, "local_mt")  # where the method runs in the script's process
    read_until(process, "calling")

    rest = end_by(process, signal.SIGTERM)

    assert process.returncode == 143, rest
    assert "in order: True" in rest or "the server has ended" in rest, rest


def test_f47_ctrl_c_in_the_middle_of_launch_stops_what_it_started(start: Start) -> None:
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
    process = start(body)
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


def test_f51_a_launcher_that_is_killed_as_it_starts_leaves_nothing(
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

    for delay_s in (0.1, 0.2, 0.3, 0.5):
        process = start(body, cwd=tmp_path, env=env)
        time.sleep(delay_s)  # no order: any moment will do
        process.kill()
        process.wait()

        until(lambda: not any(is_here(p) for p in psutil.process_iter()))
        until(lambda: not list(runtime.rglob("*")))


def test_f52_ctrl_z_stops_the_launcher_and_no_worker(start: Start) -> None:
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
    process = start(body, process_group=0)
    read_until(process, "tick")
    ticks = Path(str(process.args[1]) + ".ticks")  # type: ignore[index]

    process.send_signal(signal.SIGTSTP)
    launcher = psutil.Process(process.pid)
    until(lambda: launcher.status() == psutil.STATUS_STOPPED)
    before = ticks.stat().st_size
    until(lambda: ticks.stat().st_size > before + 10)
    process.send_signal(signal.SIGCONT)
    read_until(process, "tick")
    end_by(process, signal.SIGINT)

    assert process.returncode == 130


@both_by_script
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


@pytest.mark.parametrize(
    ("launch_type", "gone"), [("local_mt", "pipe"), ("local_mp", "pipe"), ("local_mp", "terminal")]
)
def test_f53_a_program_whose_output_is_not_read_runs_on_and_never_spins(
    start: Start, launch_type: str, gone: str
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
    ours, theirs = pty.openpty() if gone == "terminal" else os.pipe()
    process = start(body, launch_type, stdout=theirs, stderr=theirs, start_new_session=True)
    os.close(theirs)
    seen = b""
    while b"first" not in seen:
        seen += os.read(ours, 1024)

    os.close(ours)

    assert process.wait(DEADLINE_S) == 7
