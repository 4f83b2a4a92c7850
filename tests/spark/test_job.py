"""What is said of a job: which hosts are absent, and why it has ended."""

from __future__ import annotations

import socket
from types import SimpleNamespace
from typing import Any, cast

import pytest

from launchpad.errors import LaunchError
from launchpad.launch.backends.remote.node_connection import (
    NodeGone,
    NodeReady,
)
from launchpad.launch.backends.remote.worker_host import HostReady
from launchpad.launch.backends.spark import workers
from launchpad.launch.backends.spark.job import SlotsWanted, reason
from launchpad.launch.backends.spark.task_handle import TaskHandle

LOST = (
    "Job aborted due to stage failure: Could not recover from a failed barrier ResultStage. Most recent"
    " failure reason: Stage failed because barrier task ResultTask(0, 1) finished unsuccessfully.\n"
)


def test_absent_hosts_are_named_with_their_workers() -> None:
    hosts = {"learner-0": 0, "actor-0": 1, "actor-1": 2, "actor-2": 1}
    job: Any = SimpleNamespace(n_tasks=3, joined={0: object()}, hosts=hosts)

    assert workers._absent(job) == (
        "1 of 3 hosts have joined; absent: task 1 (for actor-0, actor-2), task 2 (for actor-1)"
    )


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        (
            "Job 0 cancelled part of cancelled job group x",
            "Job 0 cancelled part of cancelled job group x",
        ),
        (
            f"{LOST}ExecutorLostFailure (executor 0 exited) Reason: Command exited with code 137\n"
            "Driver stacktrace:\n\tat org.apache.spark.Scheduler",
            "ExecutorLostFailure (executor 0 exited) Reason: Command exited with code 137",
        ),
        (
            f"{LOST}org.apache.spark.api.python.PythonException: [PYTHON_EXCEPTION] Traceback:\n"
            '  File "task_host.py", line 1, in serve\n    asyncio.run()\n'
            "NotSent: nothing listens at tcp:10.0.0.1:1\n\tat org.apache.spark.Executor",
            "NotSent: nothing listens at tcp:10.0.0.1:1",
        ),
        ("", "Exception"),
    ],
)
def test_of_what_spark_says_the_reason_is_shown(text: str, shown: str) -> None:
    error = Exception("An error occurred while calling o1.collect")
    cast(Any, error).java_exception = SimpleNamespace(getMessage=lambda: text)

    assert reason(error) == shown


@pytest.mark.parametrize(
    ("n_slots", "is_settled", "waited_s", "is_enough"),
    [
        (4, False, 0.0, True),
        (2, True, 0.0, False),  # Spark has not noticed yet that it lacks an executor
        (2, True, 31.0, True),
        (2, False, 31.0, False),
        (1, True, 31.0, False),  # two workers want one each
    ],
)
def test_a_job_waits_a_while_for_slots(
    n_slots: int, is_settled: bool, waited_s: float, is_enough: bool
) -> None:
    wanted = SlotsWanted(most=4, least=2, before=4)

    assert wanted.are_met_by(n_slots, is_settled, waited_s) == is_enough


def test_a_job_does_not_wait_for_slots_that_the_one_before_did_not_have_either() -> None:
    wanted = SlotsWanted(most=8, before=4)

    assert wanted.are_met_by(4, is_settled=True, waited_s=0.0)


def test_executors_are_given_an_address_that_they_reach(monkeypatch: pytest.MonkeyPatch) -> None:
    found: list[Any] = [(0, 0, 0, "", ("127.0.1.1", 0)), (0, 0, 0, "", ("10.0.0.7", 0))]
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_: found)
    monkeypatch.setattr(workers, "own_ip", lambda towards: "10.0.0.8")

    assert workers._reachable_ip("driver", "spark://master:7077") == "10.0.0.7"
    del found[1]
    assert workers._reachable_ip("driver", "spark://master:7077") == "10.0.0.8"
    assert workers._reachable_ip("driver", "local[*]") == "127.0.1.1"


def test_a_drivers_host_that_has_no_address_is_named() -> None:
    with pytest.raises(LaunchError, match=r"spark\.driver\.host='no\.such\.invalid'"):
        workers._reachable_ip("no.such.invalid", "spark://master:7077")


@pytest.mark.parametrize(
    ("why", "said"),
    [
        (
            "Python worker exited unexpectedly",
            "ended with its barrier stage, since task 0 of Spark executor 0 on 10.0.0.1 has died",
        ),
        (
            "ExecutorLostFailure (executor 0 exited)",
            "its host, task 1 of Spark executor 0 on 10.0.0.1, has died",
        ),
    ],
)
def test_a_task_is_not_blamed_for_another_one_of_its_executor(why: str, said: str) -> None:
    there = SimpleNamespace(ready=NodeReady(HostReady("n", "10.0.0.1"), "0"))
    job: Any = SimpleNamespace(why=why, lost_task=0, joined=[there, there], hosts={"actor-1": 1})

    death = TaskHandle("actor-1", 1, job=job).describe_death(NodeGone())

    assert death == f"{said}: {why}"
