"""A script whose last line is lp.launch(program): flags, exit codes, what is on the last screen."""

from __future__ import annotations

import shlex
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.helpers import scripts
from tests.helpers.scripts import read_until

PREAMBLE = """
import atexit, os, signal, sys, threading, time
import launchpad as lp
from tests import nodes

def program_of(*made, name="script"):
    program = lp.Program(name)
    for label, node in made:
        program.add_node(node, label=label)
    return program

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
        time.sleep(0.5)
        print("saved", flush=True)

def launched(kind, name, *launch_type):
    running = lp.launch(program_of((name, lp.PyClassNode(kind)), name=name), *launch_type)
    while "runs" not in running.logs(name):
        time.sleep(0.01)
    return running

def tell_when_asked(running, name):
    while "asked" not in running.logs(name):
        time.sleep(0.01)
    print(name, "was asked", flush=True)

def wait_for_the_last_line():
    def is_over():
        frame = sys._current_frames()[threading.main_thread().ident]
        while frame is not None and frame.f_code.co_name != "<module>":
            frame = frame.f_back
        return frame is None
    while not is_over():
        threading.Event().wait(0.005)
"""
both = pytest.mark.parametrize("launch_type", ["local_mt", "local_mp"])

Run = Callable[..., subprocess.CompletedProcess[str]]
Start = Callable[..., subprocess.Popen[str]]


@pytest.fixture
def run(tmp_path: Path) -> Run:
    """Runs a body as a script to its end: with a launch type, more flags, environment variables."""

    def run(
        body: str, launch_type: str = "", *flags: str, python: str = "", shell: str = "", **env: str
    ) -> subprocess.CompletedProcess[str]:
        interpreter, file = scripts.write(tmp_path, PREAMBLE + body)
        chosen = [f"--lp_launch_type={launch_type}"] if launch_type else []
        command = [interpreter, *shlex.split(python), file, *chosen, *flags]
        if shell:
            command = ["bash", "-c", f"set -o pipefail; {shlex.join(command)} {shell}"]
        return scripts.run(command, env=env)

    return run


@pytest.fixture
def start(tmp_path: Path) -> Start:
    """Starts a body as a script; what it and its workers print can be read."""

    def start(body: str, launch_type: str, *flags: str) -> subprocess.Popen[str]:
        command = scripts.write(tmp_path, PREAMBLE + body)
        return scripts.start(command, f"--lp_launch_type={launch_type}", *flags)

    return start


# The end of a script is the end of its programs.

COUNTS = """
counter = lp.CourierNode(nodes.Counter)
lp.launch(program_of(("counter", counter), ("caller", lp.PyClassNode(nodes.Caller, counter.create_handle()))))
"""


def test_a_failing_worker_makes_it_exit_with_1_the_report_comes_last_and_exit_functions_are_called(
    run: Run,
) -> None:
    body = """
atexit.register(print, "registered before")
loop, bad = lp.PyClassNode(nodes.Loop), lp.PyClassNode(nodes.FailsInRun)
lp.launch(program_of(("loop", loop), ("bad", bad)))
atexit.register(print, "registered after")
"""

    done = run(body, "local_mt")

    assert done.returncode == 1
    assert "program 'script' failed: bad-0 failed in run" in done.stderr
    assert "ValueError: it broke" in done.stderr
    log = done.stderr.strip().splitlines()[-1].partition("log:")[2].strip()
    assert Path(log).name == "bad-0.log"
    assert Path(log).exists()
    assert done.stdout.endswith("registered after\nregistered before\n")


def test_output_of_workers_goes_to_files_only_when_asked(run: Run, tmp_path: Path) -> None:
    done = run(
        COUNTS,
        "local_mt",
        LAUNCHPAD_LAUNCH_LOCAL_TERMINAL="output_to_files",
        LAUNCHPAD_LOGGING_DIR=str(tmp_path / "logs"),
    )

    assert (done.returncode, done.stdout) == (0, "")
    (log,) = (tmp_path / "logs").glob("script-*/caller-0.log")
    assert log.read_text() == "caller-0 counted\n"


@pytest.mark.parametrize("closed", ["1>&-", "2>&-", "2>&1 | head -c 1"])
def test_a_failure_is_the_exit_code_also_when_the_report_cannot_be_read(
    run: Run, closed: str
) -> None:
    body = 'lp.launch(program_of(("bad", lp.PyClassNode(nodes.FailsInRun))))'

    assert run(body, "local_mt", shell=closed).returncode == 1


def test_sound_33_a_forked_child_of_the_script_neither_waits_for_its_program_nor_can_stop_it(
    run: Run,
) -> None:
    body = """
running = lp.launch(program_of(("loop", lp.PyClassNode(nodes.Loop))))
child = os.fork()
if child == 0:
    for method in (running.stop, running.wait):
        try:
            method()
        except lp.NotRunningError as error:
            print(error)
    running.__exit__(SystemExit, SystemExit(), None)
    sys.exit(7)
print("child exited with", os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), running.is_done)
running.stop()
"""

    done = run(body, "local_mp")

    assert done.stdout.count("was forked from process") == 2
    assert "child exited with 7 False" in done.stdout


@both
def test_f54_a_program_launched_by_a_node_ends_with_it(start: Start, launch_type: str) -> None:
    body = """
def outer():
    running = lp.launch(program_of(("loop", lp.PyClassNode(nodes.Loop)), name="inner"), "local_mp")
    print("inner runs", flush=True)
    running.wait()
lp.launch(program_of(("outer", lp.PyNode(outer))))
"""
    process = start(body, launch_type)
    read_until(process, "looping")

    process.send_signal(signal.SIGINT)
    rest, _ = process.communicate(timeout=30)

    assert process.returncode == 130, rest
    assert "stopped in good order" in rest


def test_sound_pass_2_a_program_may_end_while_the_script_prints(run: Run) -> None:
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

    done = run(body)

    assert (done.returncode, done.stderr) == (0, "")
    assert "printed" in done.stdout


def test_a_program_in_an_interactive_session_keeps_the_prompt_free() -> None:
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


# Flags.


def test_absl_flags_of_the_script_hold_in_its_workers_and_those_of_one_process_on_top(
    run: Run,
) -> None:
    body = """
from absl import app, flags
FLAGS = flags.FLAGS
flags.DEFINE_integer("steps", 1, "")
COLOR = flags.DEFINE_string("color", "red", "")

class Shows:
    def __init__(self, deferred):
        self.deferred = deferred

    def run(self):
        print("values", FLAGS.steps, COLOR.value, self.deferred, sys.argv[-1])

def main(argv):
    assert argv[1:] == ["positional"]
    assert lp.LAUNCH_TYPE.value == "local_mp"
    node = lp.PyClassNode(Shows, lp.Deferred(lambda: FLAGS.steps + 1))
    program = program_of(("shows", node))
    lp.launch(program, local_resources={"shows": lp.PythonProcess(args={"verbosity": 1})})

app.run(main)
"""

    done = run(body, "local_mp", "--steps=5", "--color=blue", "positional")

    assert done.returncode == 0, done.stderr
    assert "values 5 blue 6 --verbosity=1" in done.stdout


def test_without_absl_only_our_flags_are_read_and_absl_is_left_alone(run: Run) -> None:
    body = """
from absl import flags
import argparse
parser = argparse.ArgumentParser()
parser.add_argument("--mine")
mine, _ = parser.parse_known_args()
plan = lp.plan(program_of(("counter", lp.CourierNode(nodes.Counter))))
print(mine.mine, plan.launch_type, flags.FLAGS.is_parsed(), sys.argv[1:])
"""
    flags = ("--mine=3", "--lp_launch_type", "local_mp", "--unknown")

    assert run(body, "", *flags).stdout == f"3 local_mp False {list(flags)}\n"


@pytest.mark.parametrize(
    ("flags", "code", "said"),
    [
        ("--lp_lunch_type=local_mp", 1, "there is no flag {}. Did you mean --lp_launch_type?"),
        ("--lp-launch-type=local_mp", 1, "there is no flag {}. Did you mean --lp_launch_type?"),
        ("--lp_launch_type=local_mb", 1, "there is no launch type 'local_mb'"),
        ("--help", 0, "--lp_launch_type"),
        ("--lp_solver=glpk -- --help --lp_lunch_type", 0, "caller-0 counted"),
    ],
)
def test_sound_30_without_absl_mistyped_flags_of_ours_are_refused_help_lists_them_others_are_left(
    run: Run, flags: str, code: int, said: str
) -> None:
    done = run(COUNTS, "", *flags.split())

    used, empty = (done.stderr, done.stdout) if code else (done.stdout, done.stderr)
    assert done.returncode == code
    assert said.format(flags) in used
    assert empty == ""
    assert ("counted" in used) is ("counted" in said)


def test_the_environment_variable_counts_where_there_is_no_flag(run: Run) -> None:
    body = """
def launch_type():
    return lp.plan(program_of(("counter", lp.CourierNode(nodes.Counter)))).launch_type
print(launch_type())
os.environ["LP_LAUNCH_TYPE"] = "local_mp"
print(launch_type())
sys.argv.append("--lp_launch_type=test_mt")
print(launch_type())
"""

    assert run(body).stdout.split() == ["local_mt", "local_mp", "test_mt"]


def test_sound_17_sound_18_hash_seed_and_flags_of_the_interpreter_hold_in_workers(run: Run) -> None:
    body = """
def work():
    print(values())
def values():
    return hash("word"), sys.flags.dev_mode, sys.flags.optimize, sys.flags.utf8_mode
print(values())
lp.launch(program_of(("worker", lp.PyNode(work))))
"""

    done = run(body, "local_mp", python="-X dev -X utf8 -O", PYTHONHASHSEED="7")

    by_script, by_worker = done.stdout.splitlines()
    assert by_script.endswith(", True, 1, 1)")
    assert by_worker == f"worker-0  | {by_script}"


# Signals. What one does at each moment, on all backends: tests/faults/test_stop_faults.py.


def test_ctrl_c_right_after_the_last_line_is_not_lost(run: Run) -> None:
    body = """
running = lp.launch(program_of(("loop", lp.PyClassNode(nodes.Loop))))
while "looping" not in running.logs("loop"):
    time.sleep(0.01)

def interrupt(frame, event, argument):
    if event == "call" and frame.f_back is None:  # the first that the interpreter calls by itself
        sys.setprofile(None)
        signal.raise_signal(signal.SIGINT)

sys.setprofile(interrupt)
"""
    done = run(body, "local_mt")

    assert done.returncode == 130, done.stderr
    assert "Traceback" not in done.stderr
    assert "stopped in good order" in done.stdout


PATIENT = "--lp_termination_notice_secs=50"


@pytest.mark.parametrize("first", [signal.SIGINT, signal.SIGTERM])
def test_a_second_ctrl_c_counts_although_the_script_does_not_wait_yet(
    start: Start, first: signal.Signals
) -> None:
    body = """
from launchpad.launch.running import Running

stop = Running.stop
def stop_later(self, *args, **kwargs):
    signal.raise_signal(signal.SIGINT)  # the second
    stop(self, *args, **kwargs)

launched(Stubborn, "stubborn")
Running.stop = stop_later
signal.raise_signal(signal.Signals[sys.argv[2]])
"""
    process = start(body, "local_mp", first.name, PATIENT)
    seen = read_until(process, "Ctrl-C again")
    if first is signal.SIGTERM:  # nothing asks the script to stop once more
        process.send_signal(signal.SIGINT)
    rest, _ = process.communicate(timeout=20)

    assert process.returncode == (130 if first is signal.SIGINT else 143), seen + rest


def test_an_exception_in_the_script_asks_programs_to_stop_and_a_ctrl_c_then_forces_those_that_were(
    start: Start,
) -> None:
    body = """
launched(Stubborn, "first")
launched(Saves, "second")
raise KeyError("the script itself")
"""
    process = start(body, "local_mt", PATIENT)
    seen = read_until(process, "asked")

    process.send_signal(signal.SIGINT)
    rest, _ = process.communicate(timeout=30)

    assert process.returncode == 130, rest
    assert "KeyError: 'the script itself'" in seen + rest
    assert "first-0 did not stop when asked" in rest
    assert "saved" in rest
    assert "second-0 did not stop" not in rest


def test_a_ctrl_c_ends_by_force_the_program_of_a_test_that_the_end_of_the_script_stops(
    start: Start,
) -> None:
    body = """
running = launched(Stubborn, "first", "test_mp")
threading.Thread(target=tell_when_asked, args=(running, "first"), daemon=True).start()
"""
    process = start(body, "test_mp", PATIENT)
    read_until(process, "first was asked")

    process.send_signal(signal.SIGINT)
    rest, _ = process.communicate(timeout=30)

    assert process.returncode == 130, rest


CAUGHT_A_SIGTERM = """
first = launched(Saves, "first")
try:
    signal.raise_signal(signal.SIGTERM)
    time.sleep(60)
except SystemExit:
    first.wait(raise_error=False)

def press_after_the_last_line():
    wait_for_the_last_line()
    signal.raise_signal(signal.SIGINT)
threading.Thread(target=press_after_the_last_line, daemon=True).start()
"""


def test_a_program_launched_after_a_sigterm_that_was_caught_is_asked_by_the_next_ctrl_c(
    run: Run,
) -> None:
    done = run(CAUGHT_A_SIGTERM + 'launched(Saves, "second")', "local_mt")

    assert "second-0  | saved" in done.stdout
    assert done.returncode == 143, done.stderr


def test_the_ctrl_c_after_the_one_that_asked_forces_also_when_a_sigterm_came_before(
    start: Start,
) -> None:
    body = """
running = launched(Stubborn, "second")
threading.Thread(target=tell_when_asked, args=(running, "second"), daemon=True).start()
"""
    process = start(CAUGHT_A_SIGTERM + body, "local_mp", PATIENT)
    read_until(process, "second was asked")

    process.send_signal(signal.SIGINT)
    rest, _ = process.communicate(timeout=30)

    assert "second-0 did not stop when asked; it is ended by force" in rest
    assert process.returncode == 143, rest


TWO_SIGTERMS = """
from launchpad.launch import signals
signals._REPEAT_S = {repeat_s}
running = launched({kind}, "worker")
def sigterm_twice(*_):
    try:
        signal.raise_signal(signal.SIGTERM)  # its handler has returned, or raised, before the next one
    finally:
        signal.raise_signal(signal.SIGTERM)
def sigterm_twice_while_the_main_thread_waits():
    signal.signal(signal.SIGALRM, sigterm_twice)
    signal.setitimer(signal.ITIMER_REAL, 0.3)
"""


@pytest.mark.parametrize(
    "where",
    [
        "sigterm_twice()",
        "with running: sigterm_twice()",
        "sigterm_twice_while_the_main_thread_waits()",
        "sigterm_twice_while_the_main_thread_waits(); running.wait()",
    ],
)
def test_sound_09_two_sigterms_at_once_are_one(run: Run, where: str) -> None:
    done = run(TWO_SIGTERMS.format(repeat_s=1000, kind="Saves") + where, "local_mt")

    assert "saved" in done.stdout, done.stderr
    assert "ended by force" not in done.stdout
    assert done.returncode == 143


def test_sound_09_a_later_sigterm_ends_workers_by_force(run: Run) -> None:
    body = TWO_SIGTERMS.format(repeat_s=0, kind="Stubborn")

    done = run(body + "sigterm_twice_while_the_main_thread_waits()", "local_mp", PATIENT)

    assert "worker-0 did not stop when asked; it is ended by force" in done.stdout
    assert done.returncode == 143


# What Python makes difficult when the last line has run.


@both
def test_sound_24_workers_may_import_late_and_executors_are_shut_down_when_programs_have_ended(
    run: Run, launch_type: str
) -> None:
    body = """
def late():
    if lp.current().launch_type == "local_mt":
        wait_for_the_last_line()
    assert "concurrent.futures.process" not in sys.modules
    import concurrent.futures.process
    from concurrent.futures import ThreadPoolExecutor
    with ThreadPoolExecutor(2) as pool:
        print("pooled", list(pool.map(abs, [-1, 1])))
lp.launch(program_of(("late", lp.PyNode(late))))
threading._register_atexit(print, "executors are shut down")  # as modules with executors do
"""

    done = run(body, launch_type)

    assert done.stdout.splitlines() == ["late-0    | pooled [1, 1]", "executors are shut down"]
    assert (done.returncode, done.stderr) == (0, "")


WORK = """
def work():
    print("working", flush=True)
    sys.exit("fail" in sys.argv)
"""


@pytest.mark.parametrize("how", ["app.run(main)", "sys.exit(main([]))"])
def test_sound_19_a_main_that_returns_what_launch_returned_ends_as_the_program_does(
    run: Run, how: str
) -> None:
    body = f"""
from absl import app
def main(_):
    return lp.launch(program_of(("worker", lp.PyNode(work))))
{how}
"""

    done = run(WORK + body, "local_mt")
    failed = run(WORK + body, "local_mt", "fail")

    assert "working" in done.stdout
    assert (done.returncode, done.stderr) == (0, "")
    assert failed.returncode == 1
    assert "worker-0 failed" in failed.stderr
    assert "<Running" not in failed.stderr


@both
def test_sound_25_a_thread_that_outlives_the_last_line_may_launch_what_may_fail(
    run: Run, launch_type: str
) -> None:
    body = """
def launch():
    wait_for_the_last_line()
    lp.launch(program_of(("worker", lp.PyNode(work))))
threading.Thread(target=launch).start()
"""

    done = run(WORK + body, launch_type)
    failed = run(WORK + body, launch_type, "fail")

    assert "working" in done.stdout
    assert (done.returncode, done.stderr) == (0, "")
    assert failed.returncode == 1
    assert "worker-0 failed" in failed.stderr


@pytest.mark.parametrize(
    ("launch_type", "closed"),
    [
        ("local_mp", "<&-"),
        ("local_mp", "2>&-"),
        ("local_mp", "<&- >&- 2>&-"),
        ("local_mt", ">&-"),
        ("local_mt", "<&- >&- 2>&-"),
    ],
)
def test_sound_25_a_script_may_begin_with_closed_descriptors_and_print_while_its_program_runs(
    run: Run, launch_type: str, closed: str
) -> None:
    body = """
with lp.launch(program_of(("loop", lp.PyClassNode(nodes.Loop)))) as running:
    while "looping" not in running.logs("loop"):
        time.sleep(0.01)
    print("shown on stdout", flush=True)
    print("shown on stderr", file=sys.stderr)
"""

    done = run(body, launch_type, shell=closed)

    assert done.returncode == 0
    assert ("shown on stdout" in done.stdout) is (">&-" not in closed.replace("2>&-", ""))
    assert done.stderr == ("" if "2>&-" in closed else "shown on stderr\n")


@pytest.mark.parametrize(
    ("who", "last_line", "code"),
    [
        ("thread", "", 0),
        ("thread", "sys.exit(3)", 3),
        ("thread", "sys.exit(running)", 0),
        ("thread", "raise KeyError(1)", 1),
        ("worker", "", 5),  # that of the program counts more
        ("worker", "sys.exit(3)", 5),
        ("worker", "raise KeyError(1)", 1),
    ],
)
def test_sound_11_a_thread_left_in_c_does_not_change_the_exit_code(
    run: Run, tmp_path: Path, who: str, last_line: str, code: int
) -> None:
    # What C++ registers for the exit aborts, as `terminate` does where one of its threads still runs.
    body = f"""
import ctypes
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

    done = run(body, "", "--lp_termination_notice_secs=1")

    assert done.returncode == code, done.stderr
    assert "registered with atexit" in done.stdout
    assert (tmp_path / "file").read_text() == "written"


def test_the_end_of_a_script_runs_no_code_of_objects_that_it_merely_finds(tmp_path: Path) -> None:
    script = scripts.write(
        tmp_path,
        PREAMBLE
        + """
class Odd:
    @property
    def __class__(self):
        print("looked at", flush=True)
        return Odd

odd = Odd()
lp.launch(program_of(("fails", lp.PyNode(sys.exit, 1))), "local_mt")
""",
    )

    ended = scripts.run(script)

    assert ended.returncode == 1
    assert "looked at" not in ended.stdout
