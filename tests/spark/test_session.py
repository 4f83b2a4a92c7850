"""Which Spark a launch uses, and what it says where there is none."""

from __future__ import annotations

import sys
import threading
from typing import Any

import pytest

import launchpad as lp
from launchpad.errors import LaunchError
from launchpad.launch.backends.spark import session
from tests import nodes
from tests.spark import sessions
from tests.waiting import until

DEADLINE_S = 120


def program_of(label: str = "server", count: int = 2, **resources: Any) -> lp.Program:
    """A program of some servers."""
    program = lp.Program("on-spark")
    with program.group(label, resources=lp.Resources(**resources)):
        for _ in range(count):
            program.add_node(lp.CourierNode(nodes.Counter))
    return program


def test_without_pyspark_it_is_said_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyspark.core.context", None)

    with pytest.raises(LaunchError, match=r"pip install 'launchpad-graph\[spark\]'"):
        lp.launch(program_of(), "test_spark")


def test_without_java_it_is_said_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("pyspark")
    monkeypatch.setattr(session.load().SparkContext, "_active_spark_context", None)
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", "")

    with pytest.raises(LaunchError, match="needs Java 17 or newer, and there is no 'java' here"):
        lp.launch(program_of(), "test_spark")


def test_what_no_task_can_be_is_refused_at_the_launch(spark_context: Any) -> None:
    with pytest.raises(LaunchError, match=r"server wants labels=.*take 'ray'"):
        lp.launch(program_of(labels={"zone": "a"}), "test_spark")
    with pytest.raises(LaunchError, match=r"hosts=1, and 2 workers .* \(server\): hosts=2 or more"):
        lp.launch(program_of(cpus=1), "test_spark", hosts=1)


def test_the_scripts_own_session_runs_jobs_beside_the_program(spark_context: Any) -> None:
    with lp.launch(program_of(count=5), "test_spark", hosts=2) as running:
        assert [client.add() for client in running.clients("server")] == [1] * 5
        until(lambda: session.running_tasks(spark_context) == 2)
        assert spark_context.parallelize(range(10)).sum() == 45

    assert spark_context.parallelize(range(10)).sum() == 45
    until(lambda: session.running_tasks(spark_context) == 0)


def test_hosts_that_do_not_come_are_named_with_workers_and_slots(spark_context: Any) -> None:
    def occupy() -> None:
        spark_context.setJobGroup("others", "take all slots", interruptOnCancel=True)
        with pytest.raises(Exception, match="cancelled"):
            spark_context.parallelize(range(sessions.N_SLOTS), sessions.N_SLOTS).foreach(_wait)

    others = threading.Thread(target=occupy)
    others.start()
    try:
        until(lambda: session.running_tasks(spark_context) == sessions.N_SLOTS)
        running = lp.launch(program_of(), "test_spark", host_timeout_s=10)

        with pytest.raises(lp.ProgramFailed) as failed:
            running.wait(DEADLINE_S)
    finally:
        spark_context.cancelJobGroup("others")
        others.join()

    ended = failed.value.outcome
    assert (ended.phase, ended.worker) == ("start", "server-0")
    assert ended.cause == (
        "after 10 s 0 of 2 hosts have joined; absent: task 0 (for server-0), task 1 (for server-1);"
        " of the Spark application's 4 slots 4 are in use"
    )
    assert "look at its master, local-cluster" in ended.hint


def _wait(_: int) -> None:
    threading.Event().wait()
