"""Exceptions of signal handlers, at random moments of the main thread."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from launchpad import courier
from launchpad.courier.interruptions import Condition, Lock, in_another_thread, is_interruption
from tests.courier.conftest import REPOSITORY

DEADLINE_S = 60


class Alarm(Exception):
    pass


class AlarmTimeoutError(TimeoutError):
    """An OSError, as sockets raise."""


@pytest.fixture
def interrupt_after() -> Iterator[Callable[[float, type[BaseException]], None]]:
    """A function that has an exception raised in this thread by a signal handler, after some seconds."""

    def interrupt_after(seconds: float, kind: type[BaseException]) -> None:
        def on_alarm(*_: object) -> None:
            raise kind("interrupted")

        signal.signal(signal.SIGALRM, on_alarm)
        signal.setitimer(signal.ITIMER_REAL, seconds)

    before = signal.getsignal(signal.SIGALRM)
    yield interrupt_after
    signal.setitimer(signal.ITIMER_REAL, 0)
    signal.signal(signal.SIGALRM, before)


def interrupt(n: int, *args: str) -> str:
    """What benchmarks/interrupts.py prints; it fails if something does not hold."""
    ended = subprocess.run(
        [sys.executable, "benchmarks/interrupts.py", f"--exceptions={n}", *args],
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        timeout=n + DEADLINE_S,
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr[-4000:]
    return ended.stdout


@pytest.mark.slow
@pytest.mark.parametrize("transport", ["unix", "inproc"])
def test_sound_19_exceptions_of_signal_handlers_leave_no_future_that_never_ends(
    transport: str,
) -> None:
    text = interrupt(100, f"--transports={transport}", "--queues=0", "--collectives=0")

    assert "100 exceptions" in text
    assert "all held" in text


@pytest.mark.slow
def test_sound_19_exceptions_of_signal_handlers_leave_queues_of_use() -> None:
    text = interrupt(60, "--transports=unix", "--kinds=results", "--collectives=0")

    assert "queues: 30 exceptions" in text


@pytest.mark.slow
def test_sound_19_exceptions_of_signal_handlers_leave_no_rank_waiting() -> None:
    text = interrupt(30, "--transports=unix", "--kinds=results", "--queues=0")

    assert "collectives: 15 exceptions" in text


@pytest.mark.endurance
@pytest.mark.timeout(600)
def test_sound_19_thousands_of_exceptions_of_signal_handlers_break_nothing() -> None:
    assert "all held" in interrupt(2_000)  # `make ordeal`: 10,000


@pytest.mark.parametrize("kind", [KeyboardInterrupt, Alarm, AlarmTimeoutError])
def test_an_exception_of_a_signal_handler_ends_the_wait_for_a_server(
    kind: type[BaseException], short_directory: Any, interrupt_after: Any
) -> None:
    client: Any = courier.Client(f"unix:{short_directory}/s")
    interrupt_after(0.05, kind)

    with pytest.raises(kind, match="interrupted"):
        client.echo(1)

    courier.close(client)


@pytest.mark.parametrize("kind", [KeyboardInterrupt, Alarm, AlarmTimeoutError])
def test_a_stream_whose_wait_was_interrupted_is_closed_and_says_so(
    kind: type[BaseException], unix_client_of: Any, interrupt_after: Any
) -> None:
    is_over = threading.Event()

    def rows() -> Iterator[int]:
        yield 1
        is_over.wait(DEADLINE_S)

    client = unix_client_of(rows=rows, echo=lambda value: value)
    stream = client.rows()
    assert next(stream) == 1
    interrupt_after(0.05, kind)

    with pytest.raises(kind, match="interrupted"):
        next(stream)
    with pytest.raises(courier.StreamBroken, match="a signal handler"):
        next(stream)
    is_over.set()

    assert client.echo(2) == 2


def test_a_condition_that_was_interrupted_is_held_until_the_end_of_its_block(
    interrupt_after: Any,
) -> None:
    condition = Condition(Lock())
    interrupt_after(0.02, Alarm)

    with pytest.raises(Alarm), condition:
        condition.wait()

    assert condition.acquire(blocking=False)
    condition.release()


def test_a_condition_in_a_block_of_its_own_thread_can_be_waited_for() -> None:
    condition = Condition()
    is_waiting = threading.Event()
    answers = []

    def wait() -> None:
        with condition, condition:
            is_waiting.set()
            answers.append(condition.wait(DEADLINE_S))
            answers.append(condition.wait(0.001))
            answers.append(condition.wait(0))

    thread = threading.Thread(target=wait)
    thread.start()
    is_waiting.wait(DEADLINE_S)
    with condition:
        condition.notify()
    thread.join(DEADLINE_S)

    assert answers == [True, False, False]


def test_what_runs_in_another_thread_returns_and_raises_as_ever() -> None:
    threads = []

    def run(value: int) -> int:
        threads.append(threading.get_ident())
        return 2 // value

    assert in_another_thread(run, 1) == 2
    with pytest.raises(ZeroDivisionError):
        in_another_thread(run, 0)

    assert threading.get_ident() not in threads


def test_what_runs_in_another_thread_runs_to_its_end_when_the_wait_is_interrupted(
    interrupt_after: Any,
) -> None:
    may_end = threading.Event()
    has_ended = threading.Event()

    def run() -> None:
        may_end.wait(DEADLINE_S)
        has_ended.set()

    interrupt_after(0.02, Alarm)

    with pytest.raises(Alarm):
        in_another_thread(run)
    may_end.set()

    assert has_ended.wait(DEADLINE_S)


def test_errors_of_our_own_are_told_from_those_of_a_signal_handler(interrupt_after: Any) -> None:
    errors: list[BaseException] = []
    interrupt_after(0.01, AlarmTimeoutError)

    try:
        time.sleep(DEADLINE_S)
    except OSError as error:
        errors.append(error)
    try:
        os.stat("/nothing/here")
    except OSError as error:
        errors.append(error)

    assert [is_interruption(error) for error in errors] == [True, False]
    assert is_interruption(KeyboardInterrupt())
