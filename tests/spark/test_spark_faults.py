"""What goes wrong on Spark in a way of its own: hosts, executors, jobs and scripts that are killed."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

import launchpad as lp
from tests.helpers import scripts
from tests.helpers.hosts import answered, processes_with, program_of
from tests.spark import sessions
from tests.waiting import until

pytestmark = pytest.mark.slow

DEADLINE_S = 240.0
AT_ONCE = lp.RestartPolicy(max_restarts=2, backoff=0)


def second_attempts(running: lp.Running) -> list[str]:
    """Waits until all run again; what the first attempts died of."""
    until(lambda: all((s.state, s.attempt) == ("running", 2) for s in running.status()), DEADLINE_S)
    return [status.cause for status in running.status()]


def test_a_host_that_is_killed_takes_all_workers_along_which_restart(spark_context: Any) -> None:
    with lp.launch(program_of(AT_ONCE, 2), "test_spark") as running:
        clients: list[Any] = running.clients("server")
        pids = [*clients[0].ancestors()[:5], clients[0].start_a_daemon()]

        os.kill(pids[4], signal.SIGKILL)
        causes = second_attempts(running)

        assert "its host, task 0 of Spark executor" in causes[0]
        assert "has died: " in causes[0]
        assert "ended with its barrier stage, since task 0 of Spark executor" in causes[1]
        assert [answered(client) for client in clients] == [2, 2]
        until(lambda: not any(map(psutil.pid_exists, pids)))


def test_a_host_that_hangs_does_not_keep_the_program_from_stopping(spark_context: Any) -> None:
    running = lp.launch(program_of(count=2), "test_spark")
    pids = running.client("server").ancestors()[:5]

    os.kill(pids[4], signal.SIGSTOP)
    running.stop()
    running.wait(DEADLINE_S, raise_error=False)

    first, second = running.status()
    assert (first.state, first.cause) == ("stopped", "killed when it did not stop")
    assert second.state == "stopped"
    until(lambda: not any(map(psutil.pid_exists, pids)))


def test_a_job_that_a_person_cancels_ends_the_program_and_is_named(spark_context: Any) -> None:
    running = lp.launch(program_of(count=2), "test_spark")
    assert running.client("server").add() == 1

    spark_context.cancelAllJobs()
    with pytest.raises(lp.ProgramFailed, match="cancelled") as failed:
        running.wait(DEADLINE_S)

    assert failed.value.outcome.kind == "lost"
    assert running.exit_status() == 6


# In scripts, which have made a Spark of their own.

PREAMBLE = f"""
import os, signal, sys, time
import launchpad as lp
from pyspark import SparkConf, SparkContext
from tests.helpers.hosts import answered, program_of
from tests.spark.test_spark_faults import AT_ONCE, second_attempts
context = SparkContext(conf=SparkConf().setAll(list({sessions.SETTINGS!r}.items())))
"""


@pytest.fixture(autouse=True)
def there_is_spark() -> None:
    sessions.skip_without_spark()


@pytest.fixture
def short_directory() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(dir="/tmp") as name:
        yield Path(name)


def start(body: str, **variables: str) -> subprocess.Popen[str]:
    env = scripts.environment(**sessions.VARIABLES, **variables)
    return scripts.start([sys.executable, "-c", PREAMBLE + body], stderr=subprocess.PIPE, env=env)


def test_a_killed_executor_is_named_and_policies_decide_who_restarts(short_directory: Path) -> None:
    body = """
def kill_an_executor(running):
    os.kill(running.client("server").ancestors()[6], signal.SIGKILL)

with lp.launch(program_of(AT_ONCE, count=4, cpus=1), "test_spark") as running:
    kill_an_executor(running)    # workers that want a task each wait until Spark has a new one
    print(second_attempts(running), [answered(client) for client in running.clients("server")])
running = lp.launch(program_of(count=2), "test_spark")
kill_an_executor(running)
running.wait(100, raise_error=False)
print([(s.state, s.attempt) for s in running.status()], running.failure().outcome.cause)
running = lp.launch(program_of(count=2), "test_spark")
running.client("server").add()
context.stop()
running.wait(100, raise_error=False)
print(running.failure().outcome.cause)
"""
    done = scripts.run(
        [sys.executable, "-c", PREAMBLE + body],
        env={**sessions.VARIABLES, "SPARK_WORKER_DIR": str(short_directory)},
        timeout_s=DEADLINE_S,
    )

    begun_anew, not_begun_anew, stopped = done.stdout.splitlines() or [done.stderr] * 3
    assert begun_anew.endswith("[2, 2, 2, 2]"), done.stderr
    assert "of Spark executor" in begun_anew
    assert "ExecutorLostFailure" in begun_anew
    assert not_begun_anew.startswith("[('lost', 1), ('lost', 1)]"), done.stderr
    assert "ExecutorLostFailure" in not_begun_anew
    assert "SparkContext" in stopped, done.stderr


def test_ctrl_c_stops_workers_in_good_order_also_where_pyspark_has_a_handler_for_it() -> None:
    body = """
import tests.nodes
program = lp.Program("loop")
program.add_node(lp.PyClassNode(tests.nodes.Loop), label="loop")
lp.launch(program, "spark").wait()
"""
    process = start(body)
    try:
        printed = scripts.read_until(process, "looping")
        process.send_signal(signal.SIGINT)
        rest, errors = process.communicate(timeout=DEADLINE_S)
    finally:
        process.kill()
        process.communicate()

    assert process.returncode == 130, errors
    assert "stopped in good order" in printed + rest


def test_when_the_script_is_killed_nothing_of_the_run_is_left(short_directory: Path) -> None:
    runs_folder = short_directory / "runs"
    body = """
running = lp.launch(program_of(count=2), "test_spark")
for client in running.clients("server"):
    client.start_a_daemon()
print("serving", flush=True)
time.sleep(1000)
"""
    process = start(
        body, LAUNCHPAD_RUNTIME_DIR=str(runs_folder), SPARK_WORKER_DIR=str(short_directory)
    )
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == "serving\n"
        assert len(processes_with(str(runs_folder))) >= 10  # Java, its daemons, hosts, workers
    finally:
        process.kill()
        process.communicate()

    with contextlib.suppress(AssertionError):  # the one below says what there is
        until(lambda: not processes_with(str(runs_folder)))
    assert processes_with(str(runs_folder)) == []
    assert list(runs_folder.glob("*")) == []
