"""Workers that are stuck or slow."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Any

import psutil
import pytest

import launchpad as lp
from launchpad.testing import freeze, throttle
from tests.waiting import until

DEADLINE_S = 30


class Server:
    def ping(self) -> str:
        return "pong"


def program() -> lp.Program:
    program = lp.Program("pauses")
    program.add_node(lp.CourierNode(Server), label="server")
    return program


def test_a_stuck_worker_answers_no_call_and_goes_on_afterwards() -> None:
    with lp.launch(program(), "test_mp") as running:
        client: Any = running.client("server")
        assert client.ping() == "pong"

        with freeze(running, "server-0"):
            late = client.futures.ping()
            with pytest.raises(lp.courier.DeadlineExceeded):
                client.with_options(timeout_s=0.2).ping()
            assert not late.done()

        assert late.result(DEADLINE_S) == "pong"


def test_no_thread_of_a_stuck_worker_runs_from_the_first_moment_on() -> None:
    with lp.launch(program(), "test_mp") as running:
        assert running.client("server").ping() == "pong"
        tasks = Path(f"/proc/{running.status()[0].pid}/task")

        for _ in range(20):
            with freeze(running, "server-0"):
                states = [stat.read_text().rpartition(") ")[2][0] for stat in tasks.glob("*/stat")]
            assert set(states) == {"T"}


def test_a_slow_worker_is_stopped_again_and_again_and_runs_on_afterwards() -> None:
    with lp.launch(program(), "test_mp") as running:
        client: Any = running.client("server")
        assert client.ping() == "pong"
        pid = running.status()[0].pid
        assert pid is not None
        process = psutil.Process(pid)

        with throttle(running, "server-0", share=0.5):
            for _ in range(3):
                until(lambda: process.status() == psutil.STATUS_STOPPED)
                until(lambda: process.status() != psutil.STATUS_STOPPED)
            assert client.ping() == "pong"

        assert process.status() != psutil.STATUS_STOPPED
        assert client.ping() == "pong"


def test_the_end_of_a_stuck_worker_s_program_is_no_problem() -> None:
    running = lp.launch(program(), "test_mp")
    running.client("server").ping()

    with freeze(running, "server-0"):
        running.stop(at_once=True)

    assert running.is_done


@pytest.mark.parametrize("pause", [freeze, throttle])
def test_a_thread_cannot_be_stopped_from_outside_and_the_error_says_what_to_do(pause: Any) -> None:
    with (
        lp.launch(program(), "test_mt") as running,
        pytest.raises(RuntimeError, match=r"server-0 .* test_mp"),
        pause(running, "server-0"),
    ):
        pass


def test_a_worker_that_is_not_there_is_named_beside_those_that_are() -> None:
    with (
        lp.launch(program(), "test_mt") as running,
        pytest.raises(KeyError, match=r"'sever-0'.*server-0"),
        freeze(running, "sever-0"),
    ):
        pass


def test_a_share_must_leave_something_to_both() -> None:
    with lp.launch(program(), "test_mp") as running, contextlib.ExitStack() as stack:
        running.client("server").ping()
        with pytest.raises(ValueError, match="between 0 and 1"):
            stack.enter_context(throttle(running, "server-0", share=1.0))
