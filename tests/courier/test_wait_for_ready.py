"""A call made before its server is up."""

from __future__ import annotations

import contextlib
import signal
import threading
import time
from collections.abc import Iterator

import pytest

from launchpad import courier
from launchpad.courier.client import retry
from tests.waiting import until


def call_in_thread(call) -> tuple[threading.Thread, list[object]]:
    """Makes a call in another thread; its outcome appears in the list."""
    outcome: list[object] = []

    def run() -> None:
        try:
            outcome.append(call())
        except BaseException as error:
            outcome.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    return thread, outcome


class Interrupted(Exception):
    pass


@contextlib.contextmanager
def interrupt_soon() -> Iterator[None]:
    """A signal handler raises in this thread, before long; and the block ends with that."""

    def interrupt(*_: object) -> None:
        raise Interrupted

    before = signal.signal(signal.SIGALRM, interrupt)
    signal.setitimer(signal.ITIMER_REAL, 0.05)
    try:
        with pytest.raises(Interrupted):
            yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


@pytest.mark.every_transport
@pytest.mark.timing
def test_f16_a_call_before_the_server_is_up_is_answered_at_once_when_it_is(
    serve, connect, address
) -> None:
    client = connect(address)
    arrived: list[float] = []
    asked = threading.Event()
    watched = connect(address, failure_check=lambda: asked.set())
    thread, outcome = call_in_thread(watched.m)
    future = client.futures.m()
    assert asked.wait(10)

    serve(address, m=lambda: arrived.append(time.monotonic()) or "here")
    ready = time.monotonic()
    thread.join(10)

    assert outcome == [future.result(10)] == ["here"]
    assert max(arrived) - ready < 0.1


def test_a_pause_before_the_next_attempt_ends_when_that_server_is_known_to_be_up() -> None:
    thread, outcome = call_in_thread(lambda: retry.pause("unix:/run/learner", 60.0))
    until(lambda: "unix:/run/learner" in retry._paused.values())

    retry.wake("unix:/run/actor")
    assert "unix:/run/learner" in retry._paused.values()
    retry.wake("unix:/run/learner")
    thread.join(10)

    assert outcome == [None]
    assert "unix:/run/learner" not in retry._paused.values()


@pytest.mark.every_transport
def test_a_client_that_does_not_wait_is_told_at_once(connect, address) -> None:
    client = connect(address, name="learner-0", wait_for_ready=False)

    with pytest.raises(courier.NotSent, match=r"learner-0 .* is not up") as caught:
        client.m()

    assert caught.value.server == "learner-0"
    assert caught.value.method == "m"
    assert isinstance(client.futures.m().exception(10), courier.NotSent)


@pytest.mark.timing
def test_waiting_is_bounded_by_the_call_timeout(connect, address) -> None:
    client = connect(address, call_timeout=0.1)
    began = time.monotonic()

    with pytest.raises(courier.DeadlineExceeded):
        client.m()

    assert 0.09 < time.monotonic() - began < 1
    assert isinstance(client.futures.m().exception(10), courier.DeadlineExceeded)


def test_the_supervisors_failure_check_ends_the_wait(connect, address) -> None:
    failed = threading.Event()

    def failure_check() -> Exception | None:
        return courier.WorkerFailed("learner-0 failed: exit code 3") if failed.is_set() else None

    client = connect(address, failure_check=failure_check)
    thread, outcome = call_in_thread(client.m)
    future = client.futures.m()

    failed.set()
    thread.join(10)

    assert isinstance(outcome[0], courier.WorkerFailed)
    assert isinstance(future.exception(10), courier.WorkerFailed)


@pytest.mark.every_transport
def test_waiting_in_the_main_thread_can_be_interrupted_and_the_client_goes_on(
    serve, connect, address, gate
) -> None:
    client = connect(address)

    with interrupt_soon():
        client.hang()  # there is no server yet
    serve(address, hang=gate.wait, echo=lambda value: value)
    with interrupt_soon():
        client.hang()

    assert client.echo("mine") == "mine"


@pytest.mark.every_transport
def test_futures_do_not_block_while_the_server_is_not_up(serve, connect, address) -> None:
    client = connect(address)

    futures = [client.futures.echo(i) for i in range(100)]
    none_is_done = not any(future.done() for future in futures)
    serve(address, echo=lambda value: value)

    assert none_is_done
    assert [future.result(10) for future in futures] == list(range(100))


@pytest.mark.every_transport
def test_closing_the_client_ends_futures_that_wait_for_their_server(connect, address) -> None:
    client = connect(address)
    future = client.futures.m()

    courier.close(client)

    assert isinstance(future.exception(10), courier.NotSent)
