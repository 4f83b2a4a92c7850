"""A script whose last line is lp.launch(program): flags, exit codes, what is on the last screen."""

from __future__ import annotations

import os
import re
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

import launchpad as lp
from tests.helpers import scripts
from tests.helpers.scripts import read_until, run, start
from tests.waiting import runs, until

PREAMBLE = """
import sys, time, threading
import launchpad as lp
from tests import nodes

def program_of(*made, name="script"):
    program = lp.Program(name)
    for label, node in made:
        program.add_node(node, label=label)
    return program
"""
LOCAL = ["local_mt", "local_mp"]
both = pytest.mark.parametrize("launch_type", LOCAL)


def script(tmp_path: Path, body: str) -> list[str]:
    """A command that runs the body as a script."""
    return scripts.write(tmp_path, PREAMBLE + body)


COUNTS = """
counter = lp.CourierNode(nodes.Counter)
lp.launch(program_of(("counter", counter), ("caller", lp.PyClassNode(nodes.Caller, counter.create_handle()))))
"""


@both
def test_a_script_runs_until_its_program_ends_and_exits_with_0(
    tmp_path: Path, launch_type: str
) -> None:
    done = run(script(tmp_path, COUNTS), f"--lp_launch_type={launch_type}")

    assert done.returncode == 0, done.stderr
    assert "caller-0  | caller-0 counted" in done.stdout
    assert done.stderr == ""


@both
def test_a_failing_worker_makes_it_exit_with_1_and_the_report_comes_last(
    tmp_path: Path, launch_type: str
) -> None:
    body = """
loop, bad = lp.PyClassNode(nodes.Loop), lp.PyClassNode(nodes.FailsInRun)
lp.launch(program_of(("loop", loop), ("bad", bad)))
"""

    done = run(script(tmp_path, body), f"--lp_launch_type={launch_type}")

    assert done.returncode == 1
    assert "program 'script' failed: bad-0 failed in run" in done.stderr
    assert "ValueError: it broke" in done.stderr
    log = done.stderr.strip().splitlines()[-1].partition("log:")[2].strip()
    assert Path(log).name == "bad-0.log"
    assert Path(log).exists()


@both
def test_output_of_workers_goes_to_files_only_when_asked(tmp_path: Path, launch_type: str) -> None:
    done = run(
        script(tmp_path, COUNTS),
        f"--lp_launch_type={launch_type}",
        env={
            "LAUNCHPAD_LAUNCH_LOCAL_TERMINAL": "output_to_files",
            "LAUNCHPAD_LOGGING_DIR": str(tmp_path / "logs"),
        },
    )

    assert (done.returncode, done.stdout) == (0, "")
    (log,) = (tmp_path / "logs").glob("script-*/caller-0.log")
    assert log.read_text() == "caller-0 counted\n"


@both
def test_waiting_raises_the_failure_where_the_script_can_catch_it(
    tmp_path: Path, launch_type: str
) -> None:
    body = """
running = lp.launch(program_of(("bad", lp.PyClassNode(nodes.FailsInRun))))
try:
    running.wait(30)
except lp.ProgramFailed as failure:
    print("caught", failure.worker, failure.phase)
"""

    done = run(script(tmp_path, body), f"--lp_launch_type={launch_type}")

    assert done.returncode == 0
    assert "caught bad-0 run" in done.stdout


@both
def test_an_exception_in_the_script_stops_the_program(tmp_path: Path, launch_type: str) -> None:
    body = """
lp.launch(program_of(("loop", lp.PyClassNode(nodes.Loop))))
raise KeyError("the script itself")
"""

    done = run(script(tmp_path, body), f"--lp_launch_type={launch_type}")

    assert done.returncode == 1
    assert "KeyError: 'the script itself'" in done.stderr


@both
def test_what_else_is_registered_for_the_exit_runs_before_the_failures_exit_code(
    tmp_path: Path, launch_type: str
) -> None:
    body = """
import atexit
atexit.register(print, "registered before")
lp.launch(program_of(("bad", lp.PyClassNode(nodes.FailsInRun))))
atexit.register(print, "registered after")
"""

    done = run(script(tmp_path, body), f"--lp_launch_type={launch_type}")

    assert done.returncode == 1
    assert done.stdout.endswith("registered after\nregistered before\n")


@pytest.mark.parametrize("closed", ["1>&-", "2>&-", "2>&1 | head -c 1"])
def test_a_failure_is_the_exit_code_also_when_the_report_cannot_be_read(
    tmp_path: Path, closed: str
) -> None:
    body = 'lp.launch(program_of(("bad", lp.PyClassNode(nodes.FailsInRun))))'
    command = f"set -o pipefail; {shlex.join(script(tmp_path, body))} {closed}"

    done = run(["bash", "-c", command])

    assert done.returncode == 1


@both
def test_a_forked_child_of_the_script_does_not_wait_for_the_program(
    tmp_path: Path, launch_type: str
) -> None:
    body = """
import os
running = lp.launch(program_of(("loop", lp.PyClassNode(nodes.Loop))))
child = os.fork()
if child == 0:
    sys.exit(7)
print("child exited with", os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
running.stop()
"""

    done = run(script(tmp_path, body), f"--lp_launch_type={launch_type}")

    assert "child exited with 7" in done.stdout


@both
def test_a_worker_can_use_a_thread_pool_after_the_last_line_of_the_script(
    tmp_path: Path, launch_type: str
) -> None:
    body = """
def pooled():
    if threading.current_thread() is not threading.main_thread():
        threading.main_thread().join(0.2)
    from concurrent.futures import ThreadPoolExecutor
    with ThreadPoolExecutor(2) as pool:
        print("pooled", list(pool.map(abs, [-1, 1])))
lp.launch(program_of(("pooled", lp.PyNode(pooled))))
"""

    done = run(script(tmp_path, body), f"--lp_launch_type={launch_type}")

    assert done.returncode == 0, done.stderr
    assert "pooled [1, 1]" in done.stdout


@both
def test_f54_a_program_launched_by_a_node_ends_with_it(tmp_path: Path, launch_type: str) -> None:
    body = """
def outer():
    running = lp.launch(program_of(("loop", lp.PyClassNode(nodes.Loop)), name="inner"), "local_mp")
    print("inner runs", flush=True)
    running.wait()
lp.launch(program_of(("outer", lp.PyNode(outer))))
"""
    process = start(script(tmp_path, body), f"--lp_launch_type={launch_type}")
    read_until(process, "looping")

    process.send_signal(signal.SIGINT)
    rest, _ = process.communicate(timeout=30)

    assert process.returncode == 130, rest
    assert "stopped in good order" in rest


@both
def test_it_works_under_absl_with_flags_of_the_scripts_own(
    tmp_path: Path, launch_type: str
) -> None:
    body = """
from absl import app, flags
TIMES = flags.DEFINE_integer("times", 1, "")

def main(argv):
    assert argv[1:] == ["positional"]
    assert lp.LAUNCH_TYPE.value == sys.argv[1].partition("=")[2]
    counter = lp.CourierNode(nodes.Counter)
    caller = lp.PyClassNode(nodes.Caller, counter.create_handle(), TIMES.value)
    lp.launch(program_of(("counter", counter), ("caller", caller)))

app.run(main)
"""

    done = run(script(tmp_path, body), f"--lp_launch_type={launch_type}", "--times=2", "positional")

    assert done.returncode == 0, done.stderr
    assert "counted" in done.stdout


@both
def test_absl_flags_of_the_script_hold_in_its_workers(tmp_path: Path, launch_type: str) -> None:
    body = """
from absl import app, flags
FLAGS = flags.FLAGS
flags.DEFINE_integer("steps", 1, "")
COLOR = flags.DEFINE_string("color", "red", "")

class Shows:
    def __init__(self, deferred):
        self.deferred = deferred

    def run(self):
        print("values", FLAGS.steps, COLOR.value, self.deferred)

def main(argv):
    node = lp.PyClassNode(Shows, lp.Deferred(lambda: FLAGS.steps + 1))
    lp.launch(program_of(("shows", node)))

app.run(main)
"""

    done = run(
        script(tmp_path, body), f"--lp_launch_type={launch_type}", "--steps=5", "--color=blue"
    )

    assert done.returncode == 0, done.stderr
    assert "values 5 blue 6" in done.stdout


@both
def test_classes_of_the_script_are_not_changed_by_launching(
    tmp_path: Path, launch_type: str
) -> None:
    body = """
X = 1
class Node:
    launches = 0
    def get(self):
        return X
    def run(self):
        pass
before, Node.launches = Node.get, 7
lp.launch(program_of(("node", lp.PyClassNode(Node)))).wait(30)
X = 2
print("unchanged", Node.get is before, Node().get(), Node.launches)
"""

    done = run(script(tmp_path, body), f"--lp_launch_type={launch_type}")

    assert "unchanged True 2 7" in done.stdout, done.stderr


@both
def test_messages_of_a_class_of_the_script_leave_the_receivers_class_alone(
    tmp_path: Path, launch_type: str
) -> None:
    body = """
class Message:
    count = 0

class Server:
    def take(self, message):
        Message.count += 1
        return Message.count

def send(server):
    print("counts", [server.take(Message()) for _ in range(3)])

server = lp.CourierNode(Server)
lp.launch(program_of(("server", server), ("sender", lp.PyNode(send, server.create_handle()))))
"""

    done = run(script(tmp_path, body), f"--lp_launch_type={launch_type}")

    assert "counts [1, 2, 3]" in done.stdout, done.stderr


def test_flags_of_one_process_come_on_top(tmp_path: Path) -> None:
    body = """
from absl import app, flags
STEPS = flags.DEFINE_integer("steps", 1, "")

def show():
    print("steps", STEPS.value, sys.argv[-1])

def main(argv):
    program = program_of(("one", lp.PyNode(show)))
    lp.launch(program, local_resources={"one": lp.PythonProcess(args={"verbosity": 1})})

app.run(main)
"""

    done = run(script(tmp_path, body), "--lp_launch_type=local_mp", "--steps=5")

    assert done.returncode == 0, done.stderr
    assert "steps 5 --verbosity=1" in done.stdout


def test_without_absl_only_our_flags_are_read_and_absl_is_left_alone(tmp_path: Path) -> None:
    body = """
from absl import flags
import argparse
parser = argparse.ArgumentParser()
parser.add_argument("--mine")
mine, _ = parser.parse_known_args()
plan = lp.plan(program_of(("counter", lp.CourierNode(nodes.Counter))))
print(mine.mine, plan.launch_type, flags.FLAGS.is_parsed(), sys.argv[1:])
"""

    done = run(script(tmp_path, body), "--mine=3", "--lp_launch_type", "local_mp", "--unknown")

    assert (
        done.stdout
        == "3 local_mp False ['--mine=3', '--lp_launch_type', 'local_mp', '--unknown']\n"
    )


@pytest.mark.parametrize("flag", ["--lp_lunch_type=local_mp", "--lp-launch-type=local_mp"])
def test_sound_30_a_mistyped_flag_of_ours_is_refused_without_absl_too(
    tmp_path: Path, flag: str
) -> None:
    done = run(script(tmp_path, COUNTS), flag)

    assert done.returncode == 1
    assert f"there is no flag {flag}. Did you mean --lp_launch_type?" in done.stderr
    assert done.stdout == ""


def test_sound_pass_2_a_program_may_end_while_the_script_prints(tmp_path: Path) -> None:
    """Then sys.stdout is another object again, and the one that `print` uses must not be gone."""
    body = """
class Late:
    def __str__(self):
        running.stop()
        return "printed"

running = lp.launch(program_of(("loop", lp.PyClassNode(nodes.Loop))), "local_mt")
while type(sys.stdout).__name__ != "ThreadStdout":
    time.sleep(0.001)
print(Late(), flush=True)
"""

    done = run(script(tmp_path, body))

    assert (done.returncode, done.stderr) == (0, "")
    assert "printed" in done.stdout


def test_sound_30_help_lists_our_flags_where_the_script_parses_none(tmp_path: Path) -> None:
    done = run(script(tmp_path, COUNTS), "--help")

    assert (done.returncode, done.stderr) == (0, "")
    assert "--lp_launch_type" in done.stdout
    assert "counted" not in done.stdout


def test_sound_30_other_flags_and_what_follows_a_lone_dash_dash_belong_to_the_script(
    tmp_path: Path,
) -> None:
    done = run(script(tmp_path, COUNTS), "--lp_solver=glpk", "--", "--help", "--lp_lunch_type")

    assert done.returncode == 0, done.stderr
    assert "counted" in done.stdout


def test_the_environment_variable_counts_where_there_is_no_flag(tmp_path: Path) -> None:
    body = 'print(lp.plan(program_of(("counter", lp.CourierNode(nodes.Counter)))).launch_type)'
    command = script(tmp_path, body)

    assert run(command).stdout == "local_mt\n"
    assert run(command, env={"LP_LAUNCH_TYPE": "local_mp"}).stdout == "local_mp\n"
    assert (
        run(command, "--lp_launch_type=test_mt", env={"LP_LAUNCH_TYPE": "local_mp"}).stdout
        == "test_mt\n"
    )


def test_a_launch_type_that_does_not_exist_is_refused_before_anything_starts(
    tmp_path: Path,
) -> None:
    done = run(script(tmp_path, COUNTS), "--lp_launch_type=local_mb")

    assert done.returncode == 1
    assert "there is no launch type 'local_mb'" in done.stderr


@both
def test_ctrl_c_stops_the_program_and_exits_with_130(tmp_path: Path, launch_type: str) -> None:
    process = start(
        script(tmp_path, 'lp.launch(program_of(("loop", lp.PyClassNode(nodes.Loop))))'),
        f"--lp_launch_type={launch_type}",
    )
    read_until(process, "looping")

    process.send_signal(signal.SIGINT)
    rest, _ = process.communicate(timeout=20)

    assert process.returncode == 130, rest
    assert "Traceback" not in rest
    assert "stopped in good order" in rest


@both
def test_ctrl_c_right_after_the_last_line_is_not_lost(tmp_path: Path, launch_type: str) -> None:
    body = """
running = lp.launch(program_of(("loop", lp.PyClassNode(nodes.Loop))))
while "looping" not in running.logs("loop"):
    time.sleep(0.01)

def interrupt(frame, event, argument):
    if event == "call" and frame.f_back is None:  # the first that the interpreter calls by itself
        sys.setprofile(None)
        signal.raise_signal(signal.SIGINT)

import signal
sys.setprofile(interrupt)
"""
    done = run(script(tmp_path, body), f"--lp_launch_type={launch_type}")

    assert done.returncode == 130, done.stderr
    assert "Traceback" not in done.stderr
    assert "stopped in good order" in done.stdout


@both
def test_ctrl_c_unwinds_a_run_that_never_asks_about_stopping(
    tmp_path: Path, launch_type: str
) -> None:
    body = """
class Deaf:
    def run(self):
        print("deaf", flush=True)
        while True:
            time.sleep(0.01)
lp.launch(program_of(("deaf", lp.PyClassNode(Deaf))))
"""
    process = start(script(tmp_path, body), f"--lp_launch_type={launch_type}")
    read_until(process, "| deaf")

    process.send_signal(signal.SIGINT)
    rest, _ = process.communicate(timeout=20)

    assert process.returncode == 130, rest
    assert "did not stop when asked" not in rest


def test_the_grace_period_is_what_the_flag_says(tmp_path: Path) -> None:
    body = """
class Stubborn:
    def run(self):
        print("stubborn", lp.stop_event().is_set(), flush=True)
        while True:
            time.sleep(0.01)
lp.launch(program_of(("stubborn", lp.PyClassNode(Stubborn))))
"""
    process = start(
        script(tmp_path, body), "--lp_launch_type=local_mp", "--lp_termination_notice_secs=1"
    )
    read_until(process, "stubborn False")
    began = time.monotonic()

    process.send_signal(signal.SIGINT)
    rest, _ = process.communicate(timeout=20)

    assert process.returncode == 130
    assert 1 <= time.monotonic() - began < 5
    assert "stubborn-0 did not stop when asked" in rest


def test_a_second_ctrl_c_does_not_wait_for_the_grace_period(tmp_path: Path) -> None:
    body = """
class Stubborn:
    def run(self):
        print("stubborn", lp.stop_event().is_set(), flush=True)
        while True:
            time.sleep(0.01)
lp.launch(program_of(("stubborn", lp.PyClassNode(Stubborn))))
"""
    process = start(
        script(tmp_path, body), "--lp_launch_type=local_mp", "--lp_termination_notice_secs=50"
    )
    read_until(process, "stubborn False")

    process.send_signal(signal.SIGINT)
    read_until(process, "stopping")
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=20)

    assert process.returncode == 130


@pytest.mark.parametrize("first", [signal.SIGINT, signal.SIGTERM])
def test_a_second_ctrl_c_counts_although_the_script_does_not_wait_yet(
    tmp_path: Path, first: signal.Signals
) -> None:
    body = """
import signal
from launchpad.launch.running import Running

stop = Running.stop
def stop_later(self, *args, **kwargs):
    signal.raise_signal(signal.SIGINT)  # the second
    stop(self, *args, **kwargs)

class Stubborn:
    def run(self):
        print("stubborn", lp.stop_event().is_set(), flush=True)
        while True:
            time.sleep(0.01)
running = lp.launch(program_of(("stubborn", lp.PyClassNode(Stubborn))))
while "stubborn" not in running.logs("stubborn"):
    time.sleep(0.01)
Running.stop = stop_later
signal.raise_signal(signal.Signals[sys.argv[1]])
"""
    command = script(tmp_path, body)
    flags = "--lp_launch_type=local_mp", "--lp_termination_notice_secs=50"
    process = start(command, first.name, *flags)
    seen = read_until(process, "Ctrl-C again")
    if first is signal.SIGTERM:  # nothing asks the script to stop once more
        process.send_signal(signal.SIGINT)
    rest, _ = process.communicate(timeout=20)

    assert process.returncode == (130 if first is signal.SIGINT else 143), seen + rest


LAST_SECONDS = """
class Stubborn:
    def run(self):
        stopping = lp.stop_event()  # from here on it is not interrupted
        print("runs", flush=True)
        stopping.wait()
        print("asked", flush=True)
        while True:
            time.sleep(0.01)

class Saves:
    def run(self):
        stopping = lp.stop_event()
        print("runs", flush=True)
        stopping.wait()
        time.sleep(1)
        print("saved", flush=True)

def launched(kind, name, *launch_type):
    running = lp.launch(program_of((name, lp.PyClassNode(kind)), name=name), *launch_type)
    while "runs" not in running.logs(name):
        time.sleep(0.01)
    return running
"""


def test_a_ctrl_c_after_the_script_raised_forces_only_programs_that_were_asked(
    tmp_path: Path,
) -> None:
    body = """
launched(Stubborn, "first")
launched(Saves, "second")
raise ValueError
"""
    flags = "--lp_launch_type=local_mp", "--lp_termination_notice_secs=50"
    process = start(script(tmp_path, LAST_SECONDS + body), *flags)
    read_until(process, "asked")

    process.send_signal(signal.SIGINT)
    rest, _ = process.communicate(timeout=30)

    assert process.returncode == 130, rest
    assert "first-0 did not stop when asked" in rest
    assert "saved" in rest
    assert "second-0 did not stop" not in rest


def test_a_ctrl_c_ends_by_force_the_program_of_a_test_that_the_end_of_the_script_stops(
    tmp_path: Path,
) -> None:
    body = """
running = launched(Stubborn, "first", "test_mp")

def tell():
    while "asked" not in running.logs("first"):
        time.sleep(0.01)
    print("first was asked", flush=True)

threading.Thread(target=tell, daemon=True).start()
"""
    process = start(script(tmp_path, LAST_SECONDS + body), "--lp_termination_notice_secs=50")
    read_until(process, "first was asked")

    process.send_signal(signal.SIGINT)
    rest, _ = process.communicate(timeout=30)

    assert process.returncode == 130, rest


def test_a_program_launched_after_a_sigterm_that_was_caught_is_asked_by_the_next_ctrl_c(
    tmp_path: Path,
) -> None:
    body = """
import signal
first = launched(Saves, "first")
try:
    signal.raise_signal(signal.SIGTERM)
    time.sleep(60)
except SystemExit:
    first.wait(raise_error=False)
launched(Saves, "second")
print("the end", flush=True)
threading.Timer(0.5, lambda: signal.raise_signal(signal.SIGINT)).start()
"""
    process = start(script(tmp_path, LAST_SECONDS + body), "--lp_launch_type=local_mp")
    read_until(process, "the end")
    rest, _ = process.communicate(timeout=30)

    assert "saved" in rest
    assert process.returncode == 143, rest


def test_the_ctrl_c_after_the_one_that_asked_forces_also_when_a_sigterm_came_before(
    tmp_path: Path,
) -> None:
    body = """
import signal
try:
    running = launched(Saves, "first")
    signal.raise_signal(signal.SIGTERM)
    time.sleep(60)
except SystemExit:
    running.wait(raise_error=False)
running = launched(Stubborn, "second")

def tell():
    signal.raise_signal(signal.SIGINT)
    while "asked" not in running.logs("second"):
        time.sleep(0.01)
    print("second was asked", flush=True)

threading.Timer(0.5, tell).start()
"""
    flags = "--lp_launch_type=local_mp", "--lp_termination_notice_secs=50"
    process = start(script(tmp_path, LAST_SECONDS + body), *flags)
    read_until(process, "second was asked")

    process.send_signal(signal.SIGINT)
    rest, _ = process.communicate(timeout=30)

    assert "second-0 did not stop when asked; it is ended by force" in rest
    assert process.returncode == 143, rest


def test_kill_9_of_the_script_leaves_no_process_and_nothing_on_disk(tmp_path: Path) -> None:
    body = """
class Grandparent:
    def run(self):
        import subprocess
        child = subprocess.Popen(["sleep", "1000"])
        print("pids", lp.current().name, child.pid, flush=True)
        lp.wait_for_stop()
program = lp.Program("orphans")
with program.group("worker"):
    for _ in range(3):
        program.add_node(lp.PyClassNode(Grandparent))
program.add_node(lp.CourierNode(nodes.Counter), label="counter")
running = lp.launch(program)
print("runtime", running._run.runtime, flush=True)
running.client("counter").add()
print("ready", flush=True)
"""
    process = start(script(tmp_path, body), "--lp_launch_type=local_mp")
    text = read_until(process, "ready")
    while text.count("pids worker") < 3:
        text += read_until(process, "pids worker")
    family = psutil.Process(process.pid).children(recursive=True)
    runtime = Path(
        next(line.split()[1] for line in text.splitlines() if line.startswith("runtime"))
    )
    assert len(family) >= 8
    assert runtime.exists()

    process.kill()
    process.wait(10)
    until(lambda: not any(map(runs, family)), 10)
    deadline = time.monotonic() + 2
    while runtime.exists():
        assert time.monotonic() < deadline, list(runtime.iterdir())
        time.sleep(0.005)
    process.communicate()


def test_a_program_in_an_interactive_session_keeps_the_prompt_free(tmp_path: Path) -> None:
    session = """
import launchpad as lp
from tests import nodes
program = lp.Program("cell")
_ = program.add_node(lp.CourierNode(nodes.Counter), label="counter")
running = lp.launch(program, "local_mp")
print("answer", running.client("counter").add())
"""

    done = subprocess.run(
        [sys.executable, "-i", "-q"],
        input=session,
        capture_output=True,
        text=True,
        timeout=60,
        env=scripts.environment(),
    )

    assert "answer 1" in done.stdout
    assert done.returncode == 0


AFTER_THE_LAST_LINE = """
def wait_for_the_last_line():
    def is_over():
        frame = sys._current_frames()[threading.main_thread().ident]
        while frame is not None and frame.f_code.co_name != "<module>":
            frame = frame.f_back
        return frame is None
    while not is_over():
        threading.Event().wait(0.005)
"""


@both
def test_sound_24_what_a_worker_imports_late_can_be_imported(
    tmp_path: Path, launch_type: str
) -> None:
    body = (
        AFTER_THE_LAST_LINE
        + """
def late():
    if lp.current().launch_type == "local_mt":
        wait_for_the_last_line()
    assert "concurrent.futures.process" not in sys.modules
    import concurrent.futures.process
    from concurrent.futures import ThreadPoolExecutor
    print("pooled", ThreadPoolExecutor(1).submit(lambda: 7).result())
lp.launch(program_of(("late", lp.PyNode(late))))
"""
    )

    done = run(script(tmp_path, body), f"--lp_launch_type={launch_type}")

    assert "pooled 7" in done.stdout
    assert (done.returncode, done.stderr) == (0, "")


def test_sound_24_executors_are_shut_down_when_the_programs_have_ended(tmp_path: Path) -> None:
    body = (
        AFTER_THE_LAST_LINE
        + """
def late():
    wait_for_the_last_line()
    print("worked")
lp.launch(program_of(("late", lp.PyNode(late))))
threading._register_atexit(print, "executors are shut down")  # as modules with executors do
"""
    )

    done = run(script(tmp_path, body))

    assert done.stdout.splitlines() == ["late-0    | worked", "executors are shut down"]
    assert (done.returncode, done.stderr) == (0, "")


@both
@pytest.mark.parametrize("how", ["app.run(main)", "sys.exit(main([]))"])
def test_sound_19_a_main_that_returns_what_launch_returned_ends_as_the_program_does(
    tmp_path: Path, launch_type: str, how: str
) -> None:
    body = f"""
from absl import app
def main(_):
    return lp.launch(program_of(("worker", lp.PyNode(work))))
def work():
    print("working")
    sys.exit("fail" in sys.argv)
{how}
"""
    command = script(tmp_path, body)

    done = run(command, f"--lp_launch_type={launch_type}")
    failed = run(command, f"--lp_launch_type={launch_type}", "fail")

    assert "working" in done.stdout
    assert (done.returncode, done.stderr) == (0, "")
    assert failed.returncode == 1
    assert "worker-0 failed" in failed.stderr
    assert "<Running" not in failed.stderr


@both
@pytest.mark.parametrize("closed", ["<&-", ">&-", "2>&-", "<&- >&- 2>&-"])
def test_sound_25_a_script_may_begin_with_closed_descriptors(
    tmp_path: Path, launch_type: str, closed: str
) -> None:
    command = (
        f"{shlex.join([*script(tmp_path, COUNTS), f'--lp_launch_type={launch_type}'])} {closed}"
    )

    done = run(["bash", "-c", command], env={"LAUNCHPAD_LOGGING_DIR": str(tmp_path / "logs")})

    assert done.returncode == 0
    (log,) = (tmp_path / "logs").glob("script-*/caller-0.log")
    assert log.read_text() == "caller-0 counted\n"


@both
def test_sound_25_a_thread_that_outlives_the_last_line_may_launch(
    tmp_path: Path, launch_type: str
) -> None:
    body = (
        AFTER_THE_LAST_LINE
        + """
def launch():
    wait_for_the_last_line()
    lp.launch(program_of(("worker", lp.PyNode(work))))
def work():
    print("working", flush=True)
    sys.exit("fail" in sys.argv)
threading.Thread(target=launch).start()
"""
    )
    command = script(tmp_path, body)

    done = run(command, f"--lp_launch_type={launch_type}")
    failed = run(command, f"--lp_launch_type={launch_type}", "fail")

    assert "working" in done.stdout
    assert (done.returncode, done.stderr) == (0, "")
    assert failed.returncode == 1
    assert "worker-0 failed" in failed.stderr


@pytest.mark.parametrize(
    ("last_line", "code"),
    [("", 0), ("sys.exit(3)", 3), ("sys.exit(running)", 0), ("raise KeyError(1)", 1)],
)
@pytest.mark.parametrize("who", ["worker", "thread"])
def test_sound_11_a_thread_left_in_c_does_not_change_the_exit_code(
    tmp_path: Path, last_line: str, code: int, who: str
) -> None:
    # What C++ registers for the exit aborts, as `terminate` does where one of its threads still runs.
    body = f"""
import atexit, ctypes
def work():
    lp.stop_event()  # so that it is not interrupted, before there is a thread in C
    libc = ctypes.CDLL(None)
    libc.__cxa_atexit(ctypes.cast(libc.abort, ctypes.c_void_p), None, None)
    is_left = threading.Thread(target=libc.pause, daemon=True)
    if {who == "thread"}:
        is_left.start()
    else:
        lp.stop()
        libc.pause()
atexit.register(print, "registered with atexit")
file = open({str(tmp_path / "file")!r}, "w")
file.write("written")
running = lp.launch(program_of(("worker", lp.PyNode(work))))
{last_line}
"""

    done = run(script(tmp_path, body), "--lp_termination_notice_secs=1")

    expected = 5 if who == "worker" and code != 1 else code  # that of the program counts more
    assert done.returncode == expected, done.stderr
    assert "registered with atexit" in done.stdout
    assert (tmp_path / "file").read_text() == "written"


SAVES_WHEN_ASKED = """
import signal
from launchpad.launch import signals
signals._REPEAT_S = {repeat_s}
class Saves:
    def run(self):
        stopping = lp.stop_event()  # from here on it is not interrupted
        print("runs", flush=True)
        stopping.wait()
        time.sleep({takes_s})
        print("saved", flush=True)
running = lp.launch(program_of(("saves", lp.PyClassNode(Saves))))
while "runs" not in running.logs("saves"):
    time.sleep(0.01)
def sigterm_twice(*_):
    try:
        signal.raise_signal(signal.SIGTERM)  # its handler has returned, or raised, before the next one
    finally:
        signal.raise_signal(signal.SIGTERM)
def sigterm_twice_while_the_main_thread_waits():
    signal.signal(signal.SIGALRM, sigterm_twice)
    signal.setitimer(signal.ITIMER_REAL, 0.3)
"""


@both
@pytest.mark.parametrize(
    "where",
    [
        "sigterm_twice()",
        "with running: sigterm_twice()",
        "sigterm_twice_while_the_main_thread_waits()",
        "sigterm_twice_while_the_main_thread_waits(); running.wait()",
    ],
)
def test_sound_09_two_sigterms_at_once_are_one(
    tmp_path: Path, launch_type: str, where: str
) -> None:
    body = SAVES_WHEN_ASKED.format(repeat_s=1000, takes_s=0.3) + where

    done = run(script(tmp_path, body), f"--lp_launch_type={launch_type}")

    assert "saved" in done.stdout, done.stderr
    assert "ended by force" not in done.stdout
    assert done.returncode == 143


@both
def test_sound_09_a_later_sigterm_ends_workers_by_force(tmp_path: Path, launch_type: str) -> None:
    body = (
        SAVES_WHEN_ASKED.format(repeat_s=0, takes_s=1000)
        + "sigterm_twice_while_the_main_thread_waits()"
    )
    flags = f"--lp_launch_type={launch_type}", "--lp_termination_notice_secs=1000"

    done = run(script(tmp_path, body), *flags)

    assert "saves-0 did not stop when asked; it is ended by force" in done.stdout
    assert done.returncode == 143


@both
def test_sound_17_the_hash_seed_of_a_script_that_was_given_one_is_that_of_its_workers(
    tmp_path: Path, launch_type: str
) -> None:
    body = """
def work():
    print("worker", hash("word"))
print("script", hash("word"))
lp.launch(program_of(("worker", lp.PyNode(work))))
"""

    done = run(
        script(tmp_path, body), f"--lp_launch_type={launch_type}", env={"PYTHONHASHSEED": "7"}
    )

    (by_script,) = re.findall(r"script (-?\d+)", done.stdout)
    assert f"worker {by_script}" in done.stdout


@both
def test_sound_18_the_interpreters_flags_hold_in_workers(tmp_path: Path, launch_type: str) -> None:
    body = """
def work():
    print(sys.flags.dev_mode, sys.flags.optimize, sys.flags.utf8_mode)
lp.launch(program_of(("worker", lp.PyNode(work))))
"""
    python, file = script(tmp_path, body)

    done = run([python, "-O", "-X", "dev", "-X", "utf8", file], f"--lp_launch_type={launch_type}")

    assert "True 1 1" in done.stdout, done.stderr


@pytest.mark.parametrize("method", ["stop", "wait", "leave"])
@pytest.mark.parametrize("launch_type", ["test_mt", "test_mp"])
def test_sound_33_a_forked_child_of_the_script_cannot_stop_its_program_and_says_so(
    launch_type: str, method: str
) -> None:
    program = lp.Program("forked")
    program.add_node(lp.PyNode(lp.wait_for_stop), label="waiter")

    with lp.launch(program, launch_type) as running:
        pid = os.fork()
        if pid == 0:
            try:
                signal.alarm(30)
                if method == "leave":
                    running.__exit__(SystemExit, SystemExit(), None)
                else:
                    with pytest.raises(lp.NotRunningError, match="was forked from process"):
                        getattr(running, method)()
                os._exit(0)
            finally:
                os._exit(1)

        assert os.waitpid(pid, 0)[1] == 0
        assert not running.is_done


@both
def test_sound_25_a_script_with_a_closed_stdout_may_print_while_its_program_runs(
    tmp_path: Path, launch_type: str
) -> None:
    body = """
def work():
    print("working", flush=True)
    lp.wait_for_stop()
with lp.launch(program_of(("worker", lp.PyNode(work)))) as running:
    while "working" not in running.logs("worker"):
        time.sleep(0.01)
    print("lost", flush=True)
    print("shown", file=sys.stderr)
"""
    command = f"{shlex.join([*script(tmp_path, body), f'--lp_launch_type={launch_type}'])} >&-"

    done = run(["bash", "-c", command])

    assert (done.returncode, done.stderr) == (0, "shown\n")
