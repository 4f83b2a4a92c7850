"""`python -m launchpad`: from one terminal, look at what runs in another."""

from __future__ import annotations

import json
import os
import re
import signal
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import psutil
import pytest
from prometheus_client.parser import text_string_to_metric_families

import launchpad as lp
from launchpad.cli import control, records, runs
from launchpad.cli.main import main
from launchpad.courier import formatting
from launchpad.launch.rundir import control_server
from launchpad.launch.rundir.record import RunRecord
from launchpad.view.looks import without_launchpad_frames
from tests.cli.conftest import Command, launched
from tests.helpers import scripts, trace_events
from tests.waiting import pause, until

DEADLINE_S = 30.0
Left = Callable[..., None]
NO_PROGRAM = "no program of yours runs on this machine now"
BY_MODULE = [sys.executable, "-m", "launchpad"]


# ps


def test_ps_lists_programs_and_how_many_workers_are_in_which_state(
    demo: RunRecord, output_of: Command
) -> None:
    header, row = output_of("ps").splitlines()
    (plain,) = json.loads(output_of("ps", "--json"))

    assert header.split() == ["RUN", "PROGRAM", "PID", "TYPE", "AGE", "WORKERS"]
    run_id, program, pid, kind, *_ = row.split()
    assert (run_id, program, int(pid), kind) == (demo.run_id, "demo", demo.pid, "local_mp")
    assert row.endswith("3 running")
    assert (plain["run_id"], plain["program"], plain["pid"]) == (run_id, "demo", demo.pid)
    assert plain["workers"] == {"running": 3}


def test_ps_of_a_run_lists_its_workers_and_their_logs(demo: RunRecord, output_of: Command) -> None:
    header, *rows = output_of("ps", "demo").splitlines()

    assert header.split() == ["WORKER", "STATE", "ATTEMPT", "PID", "CPU", "MEM", "LOG", "CAUSE"]
    assert [row.split()[0] for row in rows] == ["server-0", "talker-0", "talker-1"]
    for row in rows:
        worker, state, attempt, pid, cpu, memory, log = row.split()
        assert (state, attempt) == ("running", "1")
        assert re.fullmatch(r"\d+% [\d.]+MiB", f"{cpu} {memory}")
        assert Path(log).name == f"{worker}.log"
        assert demo.pid in [each.pid for each in psutil.Process(int(pid)).parents()]


def test_ps_of_threads_has_the_numbers_of_their_process_below(output_of: Command) -> None:
    with launched("test_mt", "threads"):
        _, *rows, below = output_of("ps", "threads").splitlines()

    assert [row.split()[2:6] for row in rows] == [["1", "-", "-", "-"]] * 3
    line = rf"process {os.getpid()}, of which workers are threads: CPU \d+%, MEM [\d.]+[MG]iB"
    assert re.fullmatch(line, below)


def test_a_program_is_json_and_text_for_prometheus(demo: RunRecord, output_of: Command) -> None:
    def details() -> dict[str, Any]:
        answer: dict[str, Any] = json.loads(output_of("ps", "demo", "--json"))
        return answer if len(answer["edges"]) == 2 else {}

    run = until(details)
    families = {f.name: f for f in text_string_to_metric_families(output_of("metrics"))}

    assert (run["run_id"], run["is_exact"], run["silent"]) == (demo.run_id, True, [])
    workers = {worker["worker"]: worker for worker in run["workers"]}
    assert list(workers) == ["server-0", "talker-0", "talker-1"]
    of_talker = workers["talker-0"]
    assert (of_talker["state"], of_talker["label"], of_talker["cause"]) == ("running", "talker", "")
    assert of_talker["process"]["memory_bytes"] > 1e6
    assert [edge["server"] for edge in run["edges"]] == ["server-0"] * 2
    callers = {s.labels["caller"]: s for s in families["launchpad_edge_calls"].samples}
    assert callers["talker-0"].labels["program"] == "demo"
    assert callers["talker-0"].value >= 1
    states = families["launchpad_worker_state"].samples
    assert [(s.labels["worker"], s.labels["state"]) for s in states] == [
        (worker, "running") for worker in workers
    ]
    assert len(families["launchpad_worker_memory_bytes"].samples) == 3


def test_a_worker_that_does_not_answer_is_named_by_ps_and_not_waited_for(
    demo: RunRecord, monkeypatch: pytest.MonkeyPatch, output_of: Command
) -> None:
    monkeypatch.setattr(runs, "LOOK_S", 0.2)
    rows = json.loads(output_of("ps", "demo", "--json"))["workers"]
    pid = next(row["pid"] for row in rows if row["worker"] == "talker-1")
    pause(pid)

    printed = output_of("ps", "demo")

    os.kill(pid, signal.SIGCONT)
    assert printed.endswith("no answer within 0.2 s from talker-1\n")


def test_sound_20_ps_says_when_a_worker_is_started_again(output_of: Command) -> None:
    policy = lp.RestartPolicy(backoff=1000, within_s=3600)
    with launched("test_mt", "crashing", restart=policy):
        waits = r"  restarting, again in \d+ s \(2nd within an hour\)  "
        until(lambda: re.search(waits, output_of("ps", "crashing")))


def test_ps_spells_control_characters_of_names_and_causes_out(
    monkeypatch: pytest.MonkeyPatch, output_of: Command
) -> None:
    monkeypatch.setattr(control_server, "RESTARTED", "cause\x1b[2J\x07\nmore")
    with launched("test_mt", "name\x1b[31m") as running:
        output_of("restart", running.run_id, "talker-0")
        listed, rows = output_of("ps"), output_of("ps", running.run_id)

    assert r"name\x1b[31m" in listed
    assert r"cause\x1b[2J\x07\nmore" in rows
    assert "\x1b" not in listed + rows


def test_ps_shows_who_has_which_gpus_where_anybody_has_any(
    demo: RunRecord, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, output_of: Command
) -> None:
    monkeypatch.setenv("LP_FAKE_GPUS", "2")
    monkeypatch.setenv("LAUNCHPAD_CLAIMS_DIR", str(tmp_path / "claims"))
    assert "GPUS" not in output_of("ps", "demo")

    with launched("test_mp", "training", resources=lp.Resources(gpus=0.5)):
        programs = {
            row.split()[1]: re.split("  +", row)[-1] for row in output_of("ps").splitlines()
        }
        rows = output_of("ps", "training").splitlines()

    assert programs == {"PROGRAM": "GPUS", "demo": "-", "training": "GPU 0"}
    workers = {row.split()[0]: re.split("  +", row)[-1] for row in rows}
    assert workers == {"WORKER": "GPUS", "server-0": "-", "talker-0": "GPU 0", "talker-1": "GPU 0"}


def test_a_launcher_that_does_not_answer_is_listed_as_such_and_one_that_was_killed_is_not(
    alone: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, output_of: Command
) -> None:
    monkeypatch.setattr(control_server, "_CALL_S", 0.2)
    script = scripts.write(
        tmp_path,
        "import launchpad as lp\nprogram = lp.Program('deaf')\n"
        "program.add_node(lp.PyNode(lp.wait_for_stop), label='waits')\n"
        "lp.launch(program, 'local_mt')\nprint('up', flush=True)\n",
    )
    with scripts.start(script) as process:
        scripts.read_until(process, "up")
        pause(process.pid)
        listed = output_of("ps")
        process.kill()

    assert "1, does not answer" in listed
    assert output_of("ps") == f"{NO_PROGRAM}\n"


# restart


def test_restart_begins_the_next_attempt_of_a_worker_and_ps_says_why(output_of: Command) -> None:
    with launched("test_mt", "restarted"):
        text = output_of("restart", "restarted", "talker-0")
        rows = {row.split()[0]: row for row in output_of("ps", "restarted").splitlines()}

    assert re.fullmatch(
        r"restarting talker-0 of restarted-\S+ \(attempt 1\) …\nattempt 2 began after [\d.]+ m?s\n",
        text,
    )
    assert re.search(r"ing +2 .* restarted by `python -m launchpad restart`$", rows["talker-0"])
    assert re.search(r"running +1 ", rows["talker-1"])


def test_restart_says_that_the_program_has_ended_meanwhile(
    error_of: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    with launched("test_mt", "ended") as running:
        # Between the request and the first look the program ends.
        monkeypatch.setattr(control, "_PAUSE_S", 0.5)
        threading.Timer(0.1, running.stop).start()
        monkeypatch.setattr(running, "ask_to_restart", lambda *_: None)
        message = error_of("restart", "ended", "talker-0")

    assert re.fullmatch(r"launchpad: ended-\S+ has ended in the meantime\n", message)


# logs


def test_logs_are_those_of_a_worker_or_of_a_group(demo: RunRecord, output_of: Command) -> None:
    first, *_ = output_of("logs", "talker-1").splitlines()
    of_group = output_of("logs", "demo", "talker").splitlines()

    assert first == "this is talker 1, line 0"
    assert {line.split(" | ")[0] for line in of_group} == {"talker-0", "talker-1"}


def test_logs_are_followed_to_the_end_and_stay(
    alone: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with (
        launched("test_mp", "clumsy", restart=lp.RestartPolicy()) as running,
        ThreadPoolExecutor(1) as pool,
    ):
        following = pool.submit(main, ["logs", "-f", "clumsy", "talker-0"])
        followed = ""

        def is_in_the_next_attempt() -> bool:
            nonlocal followed
            followed += capsys.readouterr().out
            return "talker 0, line 3\n" in followed.partition("ValueError: clumsy\n")[2]

        until(is_in_the_next_attempt)
        (status,) = [row for row in running.status() if row.worker == "talker-0"]
        running.stop()
        assert following.result(DEADLINE_S) == 0
    followed += capsys.readouterr().out
    assert main(["logs", "talker-0"]) == 0
    afterwards = capsys.readouterr()

    first, second = followed.split("ValueError: clumsy\n")
    assert re.findall(r"^this.* (\d+)$", first, re.M) == [str(n) for n in range(20)]
    numbers = [int(line.split()[-1]) for line in second.splitlines()]
    assert numbers == list(range(len(numbers)))
    assert (status.attempt, Path(status.log_path).name) == (2, "talker-0.attempt_2.log")
    assert afterwards.out == followed
    assert "has ended; its logs are in" in afterwards.err


def test_a_reader_that_has_seen_enough_is_no_error(demo: RunRecord) -> None:
    command = f"{' '.join(BY_MODULE)} logs -f talker | head -n 1"

    done = scripts.run(["bash", "-c", command])

    assert done.stdout.startswith("talker-0 | this is talker 0")
    assert done.stderr == ""


# stop


@pytest.mark.parametrize(
    ("name", "options", "place"),
    [("demo", [], "in talk"), ("stubborn", ["--now"], "in _never_stop")],
)
def test_stop_returns_when_the_program_has_ended_by_force_whoever_does_not_stop(
    alone: Path, output_of: Command, name: str, options: list[str], place: str
) -> None:
    with launched("test_mp", name) as running:
        until(lambda: output_of("stacks", "talker").count(place) >= 2)
        text = output_of("stop", *options)

    assert running.exit_status() == 0  # as of no program of which a worker did not stop in time
    assert re.fullmatch(rf"stopping {name}-\S+ \(pid \d+\) …\nstopped after [\d.]+ m?s\n", text)
    assert output_of("ps") == f"{NO_PROGRAM}\n"


# stacks and traces


def test_stacks_show_where_workers_are_and_log_nothing(demo: RunRecord, output_of: Command) -> None:
    text = output_of("stacks", "demo", "talker-0")
    everything = output_of("stacks", "--all", "server")

    assert re.match(r"=== talker-0 \(pid \d+, running\)\n", text)
    assert re.search(r"endless_printer.py.* in talk", text)
    assert "threads of launchpad's own; --all shows them" in text
    assert "talker-1" not in text
    assert everything.startswith("=== server-0")
    assert "launchpad/courier/server" in everything
    assert output_of("stacks").count("=== ") == 3
    assert "Thread 0x" not in output_of("logs", "talker")


@pytest.mark.parametrize(
    ("launch_type", "name", "place"),
    [("test_mt", "threads", "in talk"), ("test_mp", "stuck", "in _hold_the_interpreter")],
)
def test_threads_and_hanging_workers_show_stacks(
    output_of: Command, launch_type: str, name: str, place: str
) -> None:
    at_once = lp.RestartPolicy(mode="never", stop_grace_s=0)
    with launched(launch_type, name, restart=at_once) as running:
        until(lambda: place in output_of("stacks", name, "talker-1"))
        running.stop()
        running.wait(DEADLINE_S, raise_error=False)


def test_a_program_s_trace_is_written(demo: RunRecord, tmp_path: Path, output_of: Command) -> None:
    path = tmp_path / "trace.json"

    printed = output_of("trace", "demo", "--seconds", "0.2", "-o", str(path))

    assert re.search(r"demo, 0\.\d s: [\d,]+ of [\d,]+ calls of 3 workers recorded\n", printed)
    names = trace_events.process_names(trace_events.read(path))
    assert {"server-0", "talker-0", "talker-1"} <= set(names.values())


def test_a_trace_that_cannot_be_had_leaves_the_file_as_it_was(
    demo: RunRecord, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error_of: Command
) -> None:
    path = tmp_path / "trace.json"
    path.write_text("of yesterday")
    monkeypatch.setattr(records, "_MORE_S", -0.9)

    assert "does not answer" in error_of("trace", "demo", "--seconds", "1", "-o", str(path))

    assert path.read_text() == "of yesterday"


# What a run leaves


def test_a_run_leaves_a_record_and_is_closed_to_others(
    alone: Path, tmp_path: Path, error_of: Command
) -> None:
    with launched("test_mt", "demo"):
        (own,) = alone.iterdir()
        token = own / "control.token"
        assert own.stat().st_mode & 0o777 == 0o700
        assert token.stat().st_mode & 0o777 == 0o600

        token.write_bytes(b"x" * 32)  # another user's

        assert "launchpad: " in error_of("stop")

    assert list(alone.iterdir()) == []
    (record,) = (tmp_path / "logs").glob("*/run.json")
    assert json.loads(record.read_text())["pid"] == os.getpid()


# Pure parts


@pytest.mark.parametrize(("name", "begins"), [("-x", "x-"), ("--", "program-"), ("ü!", "program-")])
def test_a_run_id_never_begins_with_a_dash(alone: Path, name: str, begins: str) -> None:
    program = lp.Program(name)
    program.add_node(lp.PyNode(lp.wait_for_stop), label="waits")

    with lp.launch(program, "test_mt") as running:
        assert running.run_id.startswith(begins)


def test_an_age_is_said_in_its_two_largest_units() -> None:
    ages = [formatting.age(seconds) for seconds in (0, 59.9, 60, 3725, 90_000)]

    assert ages == ["0 s", "59 s", "1 min 0 s", "1 h 2 min", "1 d 1 h"]


def test_threads_without_code_of_the_users_are_only_counted() -> None:
    begins = "Thread {} (most recent call first):\n  File"
    ours = f'{begins.format(1)} "/usr/lib/python3.11/queue.py", line 1 in get'
    theirs = f'{begins.format(2)} "/home/me/train.py", line 7 in step'

    assert without_launchpad_frames(f"{ours}\n\n{theirs}\n\n{ours}") == (
        f"{theirs}\n\n(2 threads of launchpad's own; --all shows them)"
    )
