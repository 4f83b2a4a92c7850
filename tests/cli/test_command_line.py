"""`python -m launchpad`: from one terminal, look at what runs in another."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import psutil
import pytest
from prometheus_client.parser import text_string_to_metric_families

import launchpad as lp
from launchpad import __main__ as main
from launchpad.cli import logs, ps, runs, stacks
from launchpad.graph_picture import picture_of
from launchpad.launch import registry
from launchpad.launch.detached import Detached
from launchpad.launch.rundir import locations
from launchpad.launch.rundir.directory import RunDirectory
from launchpad.launch.rundir.record import RunRecord
from launchpad.trace import Trace
from tests.helpers import scripts, trace_events
from tests.waiting import until

ROOT = Path(__file__).parents[2]
DEADLINE_S = 30.0
both = pytest.mark.parametrize("launch_type", ["local_mt", "local_mp"])

SCRIPT = """
import sys
import launchpad as lp
from tests import nodes
from tests.helpers import endless_printer

program = lp.Program(sys.argv[1])
policies = {
    "clumsy": lp.RestartPolicy(max_restarts=100),
    "crashing": lp.RestartPolicy(backoff=1000, within_s=3600),
}
policy = policies.get(sys.argv[1])
server = program.add_node(lp.CourierNode(nodes.Counter), label="server")
resources = lp.Resources(gpus=0.5) if sys.argv[1] == "training" else None
with program.group("talker", restart=policy, resources=resources):
    for number in range(2):
        program.add_node(lp.PyNode(endless_printer.talk, server, number))
lp.launch(program, sys.argv[2])
"""


@pytest.fixture
def places(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """No other program of this user is seen from here. Sockets need short paths."""
    with tempfile.TemporaryDirectory(prefix="lp-", dir="/tmp") as runtime:
        monkeypatch.setenv("LAUNCHPAD_RUNTIME_DIR", runtime)
        monkeypatch.setenv("LAUNCHPAD_LOGGING_DIR", str(tmp_path / "logs"))
        monkeypatch.setenv("PYTHONPATH", str(ROOT))
        monkeypatch.delenv("RAY_ADDRESS", raising=False)
        yield


Launch = Callable[..., "subprocess.Popen[str]"]


@pytest.fixture
def launch(places: None, tmp_path: Path) -> Iterator[Launch]:
    """Starts a script that launches a program, and waits until its workers talk."""
    with contextlib.ExitStack() as at_the_end:

        def start(launch_type: str, name: str = "demo") -> subprocess.Popen[str]:
            # Never full, as a pipe is that is not read.
            with tempfile.NamedTemporaryFile("w", dir=tmp_path, delete=False) as stdout:
                process = subprocess.Popen(
                    [sys.executable, "-c", SCRIPT, name, launch_type], stdout=stdout, text=True
                )
            printed = Path(stdout.name)
            at_the_end.enter_context(process)
            at_the_end.callback(process.kill)
            until(lambda: process.poll() is not None or talk_in(printed.read_text()))
            assert process.poll() is None, printed.read_text()
            return process

        yield start


def talk_in(printed: str) -> bool:
    """Whether each talker has printed something."""
    return {"talker-0", "talker-1"} <= {line.split(" ")[0] for line in printed.splitlines()}


def command(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "launchpad", *arguments],
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
        cwd="/",
    )


def output_of(*arguments: str) -> str:
    done = command(*arguments)
    assert done.returncode == 0, done.stderr
    return done.stdout


def error_of(*arguments: str) -> str:
    done = command(*arguments)
    assert done.returncode == 1, done.stdout
    assert "Traceback" not in done.stderr
    return done.stderr


# ps


def details_when_all_run() -> dict[str, Any]:
    """What `ps --json` tells of the program, once its workers run and both talkers have called."""

    def look() -> dict[str, Any]:
        found: dict[str, Any] = json.loads(output_of("ps", "demo", "--json"))
        are_running = all(worker["state"] == "running" for worker in found["workers"])
        return found if are_running and len(found["edges"]) == 2 else {}

    return until(look)


@both
def test_ps_lists_the_program_and_how_many_workers_are_in_which_state(
    launch: Launch, launch_type: str
) -> None:
    process = launch(launch_type)

    header, row = output_of("ps").splitlines()

    assert header.split() == ["RUN", "PROGRAM", "PID", "TYPE", "AGE", "WORKERS"]
    run_id, program, pid, kind, *_ = row.split()
    assert run_id.startswith("demo-")
    assert (program, int(pid), kind) == ("demo", process.pid, launch_type)
    assert row.endswith("3 running")


@both
def test_ps_of_a_run_lists_its_workers_with_process_attempt_and_log(
    launch: Launch, launch_type: str
) -> None:
    process = launch(launch_type)

    def lines_when_all_are_ready() -> list[str]:
        lines = output_of("ps", "demo").splitlines()
        return [] if any("starting" in line for line in lines) else lines

    header, *rows = until(lines_when_all_are_ready)
    below = [rows.pop()] if launch_type == "local_mt" else []

    assert header.split() == ["WORKER", "STATE", "ATTEMPT", "PID", "CPU", "MEM", "LOG", "CAUSE"]
    table = {row.split()[0]: row.split()[1:] for row in rows}
    assert list(table) == ["server-0", "talker-0", "talker-1"]
    used = re.compile(r"\d+% [\d.]+MB")
    for line in below:
        assert re.fullmatch(
            rf"process {process.pid}, of which workers are threads: CPU \d+%, MEM [\d.]+MB", line
        )
    for worker, (state, attempt, pid, cpu, memory, log) in table.items():
        assert (f"{cpu} {memory}" == "- -") if below else used.fullmatch(f"{cpu} {memory}")
        assert (state, attempt) == ("running", "1")
        assert Path(log).name == f"{worker}.log"
        assert (pid == "-") is (launch_type == "local_mt")
        assert pid == "-" or process.pid in [p.pid for p in psutil.Process(int(pid)).parents()]


@both
def test_a_program_is_plain_data_too_and_text_for_prometheus(
    launch: Launch, launch_type: str
) -> None:
    process = launch(launch_type)

    (program,) = json.loads(output_of("ps", "--json"))
    found = details_when_all_run()
    families = {f.name: f for f in text_string_to_metric_families(output_of("metrics"))}

    assert (program["program"], program["pid"]) == ("demo", process.pid)
    assert sum(program["workers"].values()) == 3
    assert found["run_id"] == program["run_id"]
    assert (found["is_exact"], found["silent"]) == (True, [])
    workers = {worker["worker"]: worker for worker in found["workers"]}
    assert list(workers) == ["server-0", "talker-0", "talker-1"]
    of_talker = workers["talker-0"]
    assert (of_talker["state"], of_talker["label"], of_talker["cause"]) == ("running", "talker", "")
    assert of_talker["process"]["is_shared"] is (launch_type == "local_mt")
    assert of_talker["process"]["memory_bytes"] > 1e6
    assert {edge["server"] for edge in found["edges"]} == {"server-0"}
    calls = [
        s for s in families["launchpad_edge_calls"].samples if s.labels["caller"] == "talker-0"
    ]
    assert calls[0].labels["program"] == "demo"
    assert calls[0].value >= 1
    states = {
        s.labels["worker"]: s.labels["state"] for s in families["launchpad_worker_state"].samples
    }
    assert states == dict.fromkeys(workers, "running")
    assert len(families["launchpad_worker_memory_bytes"].samples) == 3


def test_a_worker_that_does_not_answer_is_named_by_ps_and_not_waited_for(
    launch: Launch, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(runs, "LOOK_S", 0.2)
    launch("local_mp")
    rows = details_when_all_run()["workers"]
    pid = next(row["pid"] for row in rows if row["worker"] == "talker-1")
    os.kill(pid, signal.SIGSTOP)

    code = main.main(["ps", "demo"])

    os.kill(pid, signal.SIGCONT)
    assert code == 0
    assert capsys.readouterr().out.endswith("no answer within 0.2 s from talker-1\n")


def test_sound_20_ps_says_when_a_worker_is_started_again(launch: Launch) -> None:
    launch("local_mt", "crashing")

    workers = until(
        lambda: {
            row.split()[0]: row
            for row in output_of("ps", "crashing").splitlines()
            if "restarting" in row
        }
    )

    row = next(iter(workers.values()))
    assert re.search(r"  restarting, again in \d+ s \(2nd within an hour\)  ", row)


def test_ps_shows_who_has_which_gpus_where_anybody_has_any(
    launch: Launch, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("LP_FAKE_GPUS", "2")
    monkeypatch.setenv("LAUNCHPAD_CLAIMS_DIR", str(tmp_path / "claims"))
    launch("local_mp", "demo")
    without = output_of("ps", "demo")
    launch("local_mp", "training")

    runs = {row.split()[1]: row for row in output_of("ps").splitlines()}
    workers = {row.split()[0]: row for row in output_of("ps", "training").splitlines()}

    assert "GPUS" not in without
    assert runs["PROGRAM"].endswith("GPUS")
    assert runs["demo"].endswith(" -")
    assert runs["training"].endswith("GPU 0")
    assert workers["server-0"].endswith(" -")
    assert workers["talker-1"].endswith("GPU 0")


def test_when_nothing_runs_ps_says_so(places: None) -> None:
    assert output_of("ps") == "no program of yours runs on this machine now\n"


@both
def test_a_run_whose_launcher_was_killed_is_not_listed(launch: Launch, launch_type: str) -> None:
    process = launch(launch_type)
    process.kill()
    process.wait(DEADLINE_S)

    assert "no program of yours runs" in output_of("ps")


def test_a_launcher_that_does_not_answer_is_listed_as_such(
    launch: Launch, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from launchpad.__main__ import main
    from launchpad.launch.rundir import control_server

    monkeypatch.setattr(control_server, "_CALL_S", 0.2)
    process = launch("local_mt")
    process.send_signal(signal.SIGSTOP)

    code = main(["ps"])

    process.send_signal(signal.SIGCONT)
    assert code == 0
    assert "3, does not answer" in capsys.readouterr().out


# restart


@both
def test_restart_begins_the_next_attempt_of_a_worker_and_ps_says_why(
    launch: Launch, launch_type: str
) -> None:
    launch(launch_type)

    text = output_of("restart", "talker-0")

    assert re.fullmatch(
        r"restarting talker-0 of demo-\S+ \(attempt 1\) …\nattempt 2 began after [\d.]+ s\n", text
    )
    rows = {row.split()[0]: row for row in output_of("ps", "demo").splitlines()}
    assert re.search(r"ing +2 .* restarted by `python -m launchpad restart`$", rows["talker-0"])
    assert re.search(r"running +1 ", rows["talker-1"])


def test_restart_names_the_workers_if_there_is_none_of_that_name(launch: Launch) -> None:
    launch("local_mt")

    assert "has no worker 'talker'; it has server-0, talker-0, talker-1" in error_of(
        "restart", "talker"
    )


# logs


@both
def test_logs_of_one_worker_are_its_lines_as_they_are(launch: Launch, launch_type: str) -> None:
    launch(launch_type)

    first, *_ = output_of("logs", "talker-1").splitlines()

    assert first == "this is talker 1, line 0"


def test_logs_of_a_group_have_the_name_of_the_worker_in_front(launch: Launch) -> None:
    launch("local_mp")

    lines = output_of("logs", "demo", "talker").splitlines()

    assert {line.split(" | ")[0] for line in lines} == {"talker-0", "talker-1"}


@both
def test_logs_can_be_followed_until_the_program_has_ended(launch: Launch, launch_type: str) -> None:
    launch(launch_type)
    with subprocess.Popen(
        [sys.executable, "-m", "launchpad", "logs", "-f", "demo", "talker-0"],
        stdout=subprocess.PIPE,
        text=True,
    ) as following:
        assert following.stdout is not None
        lines = [following.stdout.readline() for _ in range(30)]
        output_of("stop")
        lines += following.stdout.readlines()

    numbers = [int(line.split()[-1]) for line in lines]
    assert following.returncode == 0
    assert numbers == list(range(len(numbers)))


def test_a_restarted_worker_is_followed_into_its_next_attempt(launch: Launch) -> None:
    launch("local_mp", "clumsy")
    with subprocess.Popen(
        [sys.executable, "-m", "launchpad", "logs", "-f", "talker-0"],
        stdout=subprocess.PIPE,
        text=True,
    ) as following:
        assert following.stdout is not None
        seen = ""
        while "ValueError: clumsy" not in seen or not seen.endswith("talker 0, line 3\n"):
            seen += following.stdout.readline()
        rows = output_of("ps", "clumsy")
        output_of("stop")
        following.stdout.read()

    attempt, log = re.search(r"talker-0 .*  (\d+)  +\d+  +\S+  +\S+  +(\S+)", rows).groups()
    assert int(attempt) > 1
    assert log.endswith(f"talker-0.attempt_{attempt}.log")


def test_logs_are_there_when_the_run_has_ended(launch: Launch) -> None:
    launch("local_mp")
    output_of("stop")

    done = command("logs", "talker-0")

    assert done.stdout.startswith("this is talker 0, line 0\n")
    assert "has ended; its logs are in" in done.stderr


def test_a_reader_that_has_seen_enough_is_no_error(launch: Launch) -> None:
    launch("local_mp")

    done = subprocess.run(
        ["bash", "-c", f"{sys.executable} -m launchpad logs -f talker | head -n 1"],
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
    )

    assert done.stdout.startswith("talker-0 | this is talker 0")
    assert done.stderr == ""


# stop


@both
@pytest.mark.parametrize("options", [[], ["--now"]])
def test_stop_returns_when_the_program_has_ended(
    launch: Launch, launch_type: str, options: list[str]
) -> None:
    process = launch(launch_type)

    text = output_of("stop", *options)

    assert re.fullmatch(r"stopping demo-\S+ \(pid \d+\) …\nstopped after [\d.]+ s\n", text)
    assert "no program of yours runs" in output_of("ps")
    assert process.wait(DEADLINE_S) == 0


def test_stop_by_force_takes_no_regard_of_a_worker_that_does_not_stop(launch: Launch) -> None:
    process = launch("local_mp", "stubborn")
    text = output_of("stop", "--now", "stubborn")

    took = re.search(r"stopped after ([\d.]+) s", text)
    assert took is not None
    assert float(took[1]) < 5  # its grace period is ten seconds
    process.wait(DEADLINE_S)


# stacks


@both
def test_stacks_show_where_each_worker_is(launch: Launch, launch_type: str) -> None:
    launch(launch_type)

    text = output_of("stacks", "demo", "talker-0")

    assert re.match(r"=== talker-0 \(pid \d+, running\)\n", text)
    assert "endless_printer.py" in text
    assert "in talk" in text
    assert "_watch" not in text
    assert "threads of launchpad's own; --all shows them" in text or launch_type == "local_mt"
    assert "talker-1" not in text


@pytest.mark.slow
@both
def test_a_trace_of_a_program_is_written(launch: Launch, tmp_path: Path, launch_type: str) -> None:
    launch(launch_type)
    path = tmp_path / "trace.json"

    printed = output_of("trace", "demo", "--seconds", "1", "-o", str(path))

    assert re.search(r"demo, 1\.\d s: [\d,]+ of [\d,]+ calls of 3 workers recorded\n", printed)
    names = trace_events.process_names(trace_events.read(path))
    assert {"server-0", "talker-0", "talker-1"} <= set(names.values())


def test_all_stacks_are_shown_when_asked_and_a_label_alone_is_enough(launch: Launch) -> None:
    launch("local_mp")

    text = output_of("stacks", "--all", "server")

    assert "=== server-0" in text
    assert "launchpad/courier/server" in text


def test_stacks_leave_nothing_in_the_logs(launch: Launch) -> None:
    launch("local_mp")
    output_of("stacks")

    assert "Thread 0x" not in output_of("logs", "talker")


def test_a_worker_that_hangs_in_c_code_shows_its_stack_too(launch: Launch) -> None:
    launch("local_mp", "stuck")

    until(lambda: "in _hold_the_interpreter" in output_of("stacks", "talker-1"))


# Which run is meant


def test_of_several_programs_one_has_to_be_named(launch: Launch) -> None:
    first, second = launch("local_mt", "one"), launch("local_mt", "two")

    text = error_of("stop")

    assert "several programs run; name one of them" in text
    assert str(first.pid) in text
    assert str(second.pid) in text
    assert "stopped" in output_of("stop", str(first.pid))
    assert "stopped" in output_of("stop", "two")


def test_of_two_runs_of_one_program_the_id_is_needed(launch: Launch) -> None:
    launch("local_mt")
    launch("local_mt")

    assert "several runs are called 'demo'" in error_of("ps", "demo")
    run_id = output_of("ps").splitlines()[1].split()[0]
    assert "talker-0" in output_of("ps", run_id)


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        (["ps", "nothing"], "no run is called 'nothing'; there are:\n  demo-"),
        (["logs", "nobody"], "has no group or worker 'nobody'; its groups are server, talker"),
        (["stacks", "demo", "nobody"], "has no group or worker 'nobody'"),
        (["stop", "nothing"], "no run is called 'nothing'"),
    ],
)
def test_what_is_not_there_is_an_error_that_lists_what_is(
    launch: Launch, arguments: list[str], error: str
) -> None:
    launch("local_mt")

    assert error in error_of(*arguments)


@pytest.mark.parametrize("name", ["stop", "stacks", "logs"])
def test_when_nothing_runs_that_is_the_error(places: None, name: str) -> None:
    arguments = [name, "label"] if name == "logs" else [name]

    assert "no program of yours" in error_of(*arguments)


def test_a_wrong_command_line_is_another_exit_code(places: None) -> None:
    assert command("pss").returncode == 2
    assert command("logs").returncode == 2


def test_every_command_explains_itself(places: None) -> None:
    assert output_of("--help").count("\n    ") >= 4
    assert "RUN is a program's name" in output_of("stop", "--help")


# What a run leaves


def test_a_run_leaves_a_record_with_its_logs_and_nothing_else_when_it_has_ended(
    launch: Launch,
) -> None:
    process = launch("local_mp")
    runtime, logs = (
        Path(os.environ[name]) for name in ("LAUNCHPAD_RUNTIME_DIR", "LAUNCHPAD_LOGGING_DIR")
    )
    (own,) = runtime.iterdir()
    assert own.stat().st_mode & 0o777 == 0o700
    assert (own / "control.token").stat().st_mode & 0o777 == 0o600

    output_of("stop")

    assert list(runtime.iterdir()) == []
    (record,) = logs.glob("*/run.json")
    assert json.loads(record.read_text())["pid"] == process.pid


def test_another_users_token_opens_nothing(launch: Launch) -> None:
    launch("local_mt")
    (own,) = Path(os.environ["LAUNCHPAD_RUNTIME_DIR"]).iterdir()
    (own / "control.token").chmod(0o600)
    (own / "control.token").write_bytes(b"x" * 32)

    assert "launchpad: " in error_of("stop")


# Pure parts


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0 s"),
        (59.9, "59 s"),
        (60, "1 min 0 s"),
        (3725, "1 h 2 min"),
        (90_000, "1 d 1 h"),
    ],
)
def test_an_age_is_said_in_its_two_largest_units(seconds: float, text: str) -> None:
    assert ps.age(seconds) == text


def test_threads_without_code_of_the_users_are_only_counted() -> None:
    ours = (
        'Thread 0x1 (most recent call first):\n  File "/usr/lib/python3.11/queue.py", line 1 in get'
    )
    theirs = 'Thread 0x2 (most recent call first):\n  File "/home/me/train.py", line 7 in step'

    assert stacks.without_launchpad_frames(f"{ours}\n\n{theirs}\n\n{ours}") == (
        f"{theirs}\n\n(2 threads of launchpad's own; --all shows them)"
    )


def test_a_cluster_that_cannot_be_asked_is_named(
    places: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("ray")
    monkeypatch.setenv("RAY_ADDRESS", "127.0.0.1:1")

    done = subprocess.run(
        [sys.executable, "-m", "launchpad", "ps"],
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
    )

    assert "no program of yours" in done.stdout
    assert "RAY_ADDRESS=127.0.0.1:1" in done.stderr


def planned(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "launchpad", "plan", *arguments]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=DEADLINE_S)


HELLO = "examples.hello_world.program:make_program"


def test_a_plan_is_printed_and_nothing_is_started() -> None:
    done = planned(HELLO, "--launch_type=local_mt")

    assert done.returncode == 0, done.stderr
    assert "greeter-0" in done.stdout
    assert "visitor-0" in done.stdout


def test_a_plan_for_kubernetes_is_its_manifests() -> None:
    yaml = pytest.importorskip("yaml")

    done = planned(HELLO, "--launch_type=kubernetes", "--image=registry.example.org/me:3")

    assert done.returncode == 0, done.stderr
    kinds = [each["kind"] for each in yaml.safe_load_all(done.stdout)]
    assert kinds == ["Secret", "Service", "Job", "Job"]


def test_flags_after_two_dashes_are_the_programs(tmp_path: Path) -> None:
    (tmp_path / "flagged.py").write_text(
        "import launchpad as lp\nfrom absl import flags\nfrom tests import nodes\n"
        "N = flags.DEFINE_integer('n', 1, '')\n"
        "def make():\n"
        "    program = lp.Program('flagged')\n"
        "    with program.group('counter'):\n"
        "        for _ in range(N.value):\n"
        "            program.add_node(lp.CourierNode(nodes.Counter))\n"
        "    return program\n"
    )
    command = [sys.executable, "-m", "launchpad", "plan", "flagged:make"]

    done = subprocess.run(
        [*command, "--launch_type=local_mt", "--", "--n=3"],
        cwd=tmp_path,
        env=scripts.environment(),
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
    )

    assert done.returncode == 0, done.stderr
    assert "on local_mt: 3 workers" in done.stdout


LAUNCHES = """
import launchpad as lp
from beside import Worker
def make():
    program = lp.Program("by_file")
    program.add_node(lp.PyClassNode(Worker), label="worker")
    return program
program = make()
def main():
    lp.launch(program, "local_mt")
if {guard}:
    lp.launch(program, "local_mt")
"""


@pytest.mark.parametrize("guard", ["True", "lp.run(program)", "__name__ == '__main__'"])
@pytest.mark.parametrize("where", ["{}/the script.py", "the script.py", "module"])
@pytest.mark.parametrize("name", ["make", "program"])
def test_sound_22_a_script_is_planned_by_its_file_and_launches_nothing(
    guard: str, where: str, name: str, tmp_path: Path
) -> None:
    for file in ("the script.py", "module.py"):
        (tmp_path / file).write_text(LAUNCHES.format(guard=guard))
    (tmp_path / "beside.py").write_text("class Worker:\n    def run(self): print('it runs')\n")
    command = [sys.executable, "-m", "launchpad", "plan", f"{where.format(tmp_path)}:{name}"]

    done = subprocess.run(
        [*command, "--launch_type=local_mt"],
        cwd=tmp_path,
        env=scripts.environment(),
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
    )

    assert done.returncode == 0, done.stderr
    assert "program 'by_file' on local_mt: 1 workers" in done.stdout
    assert "it runs" not in done.stdout


def test_sound_22_a_function_that_launches_is_refused_by_plan(tmp_path: Path) -> None:
    (tmp_path / "beside.py").write_text("class Worker:\n    def run(self): print('it runs')\n")
    (tmp_path / "script.py").write_text(LAUNCHES.format(guard="False"))

    done = planned(f"{tmp_path}/script.py:main")

    assert done.returncode == 1
    assert "script.py:main launches a program, where it should return one" in done.stderr
    assert "it runs" not in done.stdout


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        ([":make"], "there is no ':make' to import from here: Empty module name"),
        ([HELLO, "--", "three"], "flags of the program: 'three' is none"),
        (["nowhere:make"], "there is no 'nowhere:make' to import from here: No module named"),
        (
            ["nowhere.py:make"],
            "there is no 'nowhere.py:make' to import from here: [Errno 2] No such",
        ),
        (["json:loads_it"], "module 'json' has no attribute 'loads_it'"),
        (["json:JSONDecoder"], "json:JSONDecoder gives a JSONDecoder, and no lp.Program"),
        ([HELLO, "--launch_type=kubernetes"], "launch type 'kubernetes' needs an image"),
        ([HELLO, "--", "--no_such_flag=1"], "flags of the program: Unknown command line flag"),
    ],
)
def test_what_cannot_be_planned_is_said_in_one_line(arguments: list[str], complaint: str) -> None:
    done = planned(*arguments)

    assert done.returncode == 1
    assert done.stderr.startswith("launchpad: ")
    assert complaint in done.stderr
    assert "Traceback" not in done.stderr


def test_settings_that_cannot_be_read_are_named_and_hide_nothing(
    launch: Launch, monkeypatch: pytest.MonkeyPatch
) -> None:
    launch("local_mt")
    monkeypatch.setenv("LAUNCHPAD_KUBERNETES", "/nowhere.yaml")

    done = command("ps")

    assert done.returncode == 0, done.stderr
    assert "demo" in done.stdout
    assert "LAUNCHPAD_KUBERNETES=/nowhere.yaml cannot be read" in done.stderr


def record_of(run_id: str, runtime: Path) -> RunRecord:
    """Of a run on a cluster."""
    return RunRecord(run_id, "left", "kubernetes", 1, 0.0, str(runtime), "", {}, "some-host")


def test_a_run_on_a_cluster_is_away_unless_its_launcher_holds_its_directory_here(
    tmp_path: Path,
) -> None:
    of_the_dead = tmp_path / "dead"
    of_the_dead.mkdir()
    (of_the_dead / locations.LOCK).touch()
    run = RunDirectory("alive", tmp_path / "alive", tmp_path)
    run.make_runtime()
    try:
        assert not runs.is_detached(record_of("alive", run.runtime))
        assert runs.is_detached(record_of("dead", of_the_dead))
        assert runs.is_detached(record_of("elsewhere", tmp_path / "elsewhere"))
    finally:
        run.remove()


def test_a_run_that_cannot_be_asked_hides_no_other(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def refuses(*_: object) -> bool:
        raise lp.LaunchError("nobody answers")

    found = [
        Detached(record_of("deaf", tmp_path), refuses),
        Detached(record_of("well", tmp_path), lambda *_: False),
    ]
    monkeypatch.setattr(registry, "detached", lambda tell: found)
    runs.detached_runs.cache_clear()

    try:
        assert list(runs.detached_runs()) == ["well"]
    finally:
        runs.detached_runs.cache_clear()
    assert capsys.readouterr().err == "launchpad: deaf: nobody answers\n"


def test_workers_of_a_run_that_sends_no_numbers_are_listed_without(
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    places: None,
) -> None:
    def ask(what: str, *_: object) -> Any:
        if what == "metrics":
            raise lp.LaunchError("not on Kubernetes")
        return what == "status" and [lp.WorkerStatus("loop-0", "loop", "running", 1, "", "")]

    monkeypatch.setattr(registry, "detached", lambda _: [Detached(record_of("far", tmp_path), ask)])
    runs.detached_runs.cache_clear()
    try:
        codes = [main.main(["ps", "far", *options]) for options in ([], ["--json"])]
        table, _, data = capsys.readouterr().out.partition("{")
        assert main.main(["metrics", "far"]) == 1
    finally:
        runs.detached_runs.cache_clear()

    assert codes == [0, 0]
    assert table.splitlines()[1].split() == ["loop-0", "running", "1", "-", "-", "-"]
    found = json.loads("{" + data)
    assert (found["edges"], found["workers"][0]["state"]) == (None, "running")
    assert capsys.readouterr().err == "launchpad: not on Kubernetes\n"


def test_a_detached_run_is_drawn_traced_and_its_worker_restarted(
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    places: None,
) -> None:
    attempt = 1

    def ask(what: str, *_: object, **options: float) -> Any:
        nonlocal attempt
        if what == "ask_to_restart":
            attempt += 1
        if what == "status":
            return [lp.WorkerStatus("loop-0", "loop", "running", attempt, "", "")]
        if what == "picture":
            program = lp.Program("far")
            program.add_node(lp.PyNode(print), label="loop")
            return asdict(picture_of(program))
        if what == "trace":
            assert options["timeout_s"] > 0.5
            return Trace("far", "far", {}, (), {}, 0, 1, 0, 0, b"")
        return False

    monkeypatch.setattr(registry, "detached", lambda _: [Detached(record_of("far", tmp_path), ask)])
    runs.detached_runs.cache_clear()
    try:
        file = tmp_path / "trace.json"
        commands = ["graph far", f"trace far --seconds=0.5 -o {file}", "restart far loop-0"]
        codes = [main.main(command.split()) for command in commands]
    finally:
        runs.detached_runs.cache_clear()

    assert codes == [0, 0, 0]
    printed = capsys.readouterr().out
    assert "flowchart LR" in printed
    assert "loop-0" in printed
    assert "attempt 2 began" in printed
    assert json.loads(file.read_text())


def test_a_cluster_that_answers_no_more_is_an_error_that_says_so(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def refuses(_: object) -> None:
        raise lp.LaunchError("the cluster does not answer")

    monkeypatch.setattr(logs, "run", refuses)

    assert main.main(["logs", "learner"]) == 1
    assert capsys.readouterr().err == "launchpad: the cluster does not answer\n"
