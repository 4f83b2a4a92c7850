"""A call made before its server is up."""

from __future__ import annotations

import contextlib
import signal
import threading
import time
from collections.abc import Iterator

import pytest

from launchpad import courier
from launchpad.courier.client import call
from tests.courier.conftest import in_background
from tests.waiting import until


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
def test_f16_a_call_before_the_server_is_up_is_answered_once_it_is(serve, connect, address) -> None:
    client = connect(address)
    arrived: list[float] = []
    asked = threading.Event()
    watched = connect(address, failure_check=lambda: asked.set())
    waiting = in_background(watched.m)
    future = client.futures.m()
    assert asked.wait(10)

    serve(address, m=lambda: arrived.append(time.monotonic()) or "here")
    ready = time.monotonic()

    assert waiting.result(10) == future.result(10) == "here"
    assert max(arrived) - ready < 0.1


def test_a_pause_before_the_next_attempt_ends_when_that_server_is_known_to_be_up() -> None:
    pause = in_background(call.pause, "unix:/run/learner", 60.0)
    until(lambda: "unix:/run/learner" in call._paused.values())

    call.wake("unix:/run/actor")
    assert "unix:/run/learner" in call._paused.values()
    call.wake("unix:/run/learner")

    assert pause.result(10) is None
    assert "unix:/run/learner" not in call._paused.values()


@pytest.mark.every_transport
@pytest.mark.timing
@pytest.mark.parametrize(
    ("options", "error", "words"),
    [
        ({"wait_for_ready": False}, courier.NotSent, "learner-0 .* is not up"),
        ({"call_timeout": 0.1}, courier.DeadlineExceeded, "learner-0"),
        (
            {"failure_check": lambda: courier.WorkerFailed("learner-0 failed")},
            courier.WorkerFailed,
            "learner-0 failed",
        ),
    ],
)
def test_waiting_ends_as_the_client_was_told(connect, address, options, error, words) -> None:
    client = connect(address, name="learner-0", **options)
    began = time.monotonic()

    with pytest.raises(error, match=words) as caught:
        client.m()

    assert options.get("call_timeout", 0) * 0.9 < time.monotonic() - began < 1
    assert isinstance(client.futures.m().exception(10), error)
    if error is courier.NotSent:
        assert (caught.value.server, caught.value.method) == ("learner-0", "m")


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
def test_futures_do_not_block_while_the_server_is_not_up_and_end_with_their_client(
    serve, connect, address
) -> None:
    client, closed = connect(address), connect(address)

    futures = [client.futures.echo(i) for i in range(100)]
    lost = closed.futures.echo(0)
    none_is_done = not any(future.done() for future in [*futures, lost])
    courier.close(closed)
    serve(address, echo=lambda value: value)

    assert none_is_done
    assert [future.result(10) for future in futures] == list(range(100))
    assert isinstance(lost.exception(10), courier.NotSent)
