"""What a user sees of an error: his own line first, and no exception of ours that was only being handled."""

from __future__ import annotations

import asyncio
import ctypes
import threading
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from launchpad import courier
from launchpad.courier.transport import fault_injection
from tests.courier.conftest import DEADLINE_S, awaited, in_background

OURS = str(Path(courier.__file__).parent)


class Interrupted(BaseException):
    """As `lp.Stopped`: raised in a thread that waits."""


def call(client: Any, **options: Any) -> None:
    client.with_options(**options).m()


def future(client: Any, **options: Any) -> None:
    client.with_options(**options).futures.m().result(DEADLINE_S)


def aio(client: Any, **options: Any) -> None:
    asyncio.run(awaited(client.with_options(**options).aio.m()))


def argument_stream(client: Any, **options: Any) -> None:
    client.with_options(**options).m(iter([1]))


def argument_stream_future(client: Any, **options: Any) -> None:
    client.with_options(**options).futures.m(iter([1])).result(DEADLINE_S)


def stream(client: Any, **options: Any) -> None:
    for _ in client.with_options(**options).rows():
        pass


def async_stream(client: Any, **options: Any) -> None:
    async def main() -> None:
        async for _ in client.with_options(**options).aio.rows():
            pass

    asyncio.run(main())


WAYS = [call, future, aio, argument_stream, argument_stream_future, stream, async_stream]
Way = Callable[..., None]


def seen(way: Way, *args: Any, **options: Any) -> BaseException:
    """The error that a call ends with; complains of what a user need not see of it."""
    with pytest.raises(BaseException) as caught:  # noqa: PT011
        way(*args, **options)
    error = caught.value
    text = "".join(traceback.format_exception(error))
    first_file = next(line for line in text.splitlines() if line.startswith("  File "))
    assert OURS not in first_file, text
    assert "During handling of the above exception" not in text, text
    chain: BaseException | None = error
    while chain is not None:
        chain = chain.__cause__
        if not (chain is None or isinstance(chain, courier.RemoteTraceback)):
            assert chain.__traceback__ is None, text
    return error


@pytest.fixture(params=WAYS, ids=lambda way: way.__name__)
def way(request: pytest.FixtureRequest) -> Way:
    found: Way = request.param
    return found


def consume(*arguments: Any) -> None:
    for argument in arguments:
        list(argument)


@pytest.mark.every_transport
def test_sound_10_a_server_that_is_not_up(connect, address, way) -> None:
    client = connect(address)

    assert isinstance(seen(way, client, wait_for_ready=False), courier.NotSent)
    assert isinstance(seen(way, client, timeout_s=0.05), courier.DeadlineExceeded)


@pytest.mark.every_transport
def test_sound_10_a_worker_that_has_failed(connect, address, way) -> None:
    client = connect(address, failure_check=lambda: courier.WorkerFailed("it is gone"))

    assert isinstance(seen(way, client), courier.WorkerFailed)


@pytest.mark.every_transport
def test_sound_10_a_wrong_token(serve, connect, address, way) -> None:
    serve(address, token=b"right", m=consume, rows=lambda: iter([1]))

    error = seen(way, connect(address, token=b"wrong"))

    assert isinstance(error, courier.Refused)
    assert "refused our token" in str(error)
    assert (error.server, error.address) == ("server", address)


@pytest.mark.every_transport
def test_sound_10_a_method_that_raises_or_is_missing(serve, connect, address, way) -> None:
    def fail(*arguments: Any) -> None:
        consume(*arguments)
        raise KeyError("k")

    def rows() -> Any:
        yield 1
        raise KeyError("k")

    server = serve(address, m=fail, rows=rows)
    client = connect(address)
    assert isinstance(seen(way, client), KeyError)

    server.unbind("m")
    server.unbind("rows")

    assert isinstance(seen(way, client), courier.MethodNotFound)


@pytest.mark.every_transport
def test_sound_10_a_method_that_takes_too_long(client_of, way, gate) -> None:
    def rows() -> Any:
        yield 1
        gate.wait(DEADLINE_S)

    client = client_of(m=lambda *_: gate.wait(DEADLINE_S), rows=rows)

    for _ in range(2):
        assert isinstance(seen(way, client, timeout_s=0.05), courier.DeadlineExceeded)


@pytest.mark.every_transport
@pytest.mark.parametrize("end", [courier.Server.stop, courier.Server.drain])
def test_sound_10_a_server_that_has_stopped_or_drains(serve, connect, address, way, end) -> None:
    server = serve(address, m=consume, rows=lambda: iter([1]))
    client = connect(address)
    way(client)

    end(server)

    assert isinstance(seen(way, client, wait_for_ready=False), courier.NotSent)
    assert isinstance(seen(way, client, timeout_s=0.05), courier.DeadlineExceeded)


@pytest.mark.every_transport
def test_sound_10_a_server_that_ends_in_the_middle(serve, connect, address, way, gate) -> None:
    def rows() -> Any:
        yield 1
        gate.wait(DEADLINE_S)

    server = serve(address, m=lambda *_: gate.wait(DEADLINE_S), rows=rows)
    stopped = in_background(lambda: gate.begun.wait(DEADLINE_S) and server.stop(0.0))

    error = seen(way, connect(address))

    gate.set()
    stopped.result(DEADLINE_S)
    assert isinstance(error, courier.OutcomeUnknown)


@pytest.mark.parametrize("fault", ["drop_request", "drop_response", "cut"])
def test_sound_10_a_connection_that_breaks(socket_client_of, way, fault) -> None:
    client = socket_client_of(m=consume, rows=lambda: iter([1]))

    with fault_injection.Faults(**{fault: 1.0}):
        error = seen(way, client)

    assert isinstance(error, courier.NotSent | courier.OutcomeUnknown)


@pytest.mark.every_transport
def test_sound_10_a_call_that_is_interrupted_while_it_waits(connect, address) -> None:
    me = ctypes.c_ulong(threading.get_ident())
    asked = 0

    def check() -> None:
        nonlocal asked
        asked += 1
        if asked == 3:
            ctypes.pythonapi.PyThreadState_SetAsyncExc(me, ctypes.py_object(Interrupted))

    assert isinstance(seen(call, connect(address, failure_check=check)), Interrupted)


@pytest.mark.every_transport
def test_sound_10_arguments_that_cannot_be_pickled(client_of) -> None:
    ran: list[object] = []
    client = client_of(m=ran.append)

    for way in (client.m, client.futures.m):
        error = seen(way, threading.Lock())
        assert isinstance(error, TypeError)
        assert "lock" in str(error)
    assert ran == []


def test_sound_10_what_the_caller_is_handling_remains_the_context(connect, unix_address) -> None:
    client = connect(unix_address, wait_for_ready=False)

    def m() -> None:
        try:
            raise KeyError("mine")
        except KeyError:
            client.m()

    with pytest.raises(courier.NotSent) as caught:
        m()

    assert isinstance(caught.value.__context__, KeyError)
