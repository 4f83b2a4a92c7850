"""Large arrays in calls between processes of one host, which pass through shared memory."""

from __future__ import annotations

import contextlib
import gc
import os
import resource
import signal
import socket
import subprocess
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import psutil
import pytest

from launchpad import courier
from launchpad.courier.protocol import handshake
from launchpad.courier.shm import segments
from launchpad.courier.transport.fault_injection import Faults
from tests.courier.conftest import begin_source, exit_code_of_child, in_background
from tests.helpers.calls import as_a_future, wait
from tests.helpers.large_arrays import MB, SERVER, is_shared, n_mapped, n_open, numbers
from tests.helpers.relay import Relay
from tests.waiting import until

pytestmark = pytest.mark.skipif(not segments.IS_SUPPORTED, reason="shared memory needs Linux")


@pytest.fixture(params=[wait, as_a_future])
def call(request: pytest.FixtureRequest) -> Callable[..., Any]:
    """How a call is made: by futures there are other connections."""
    return request.param


@pytest.fixture
def server(spawn_server, unix_address) -> subprocess.Popen[str]:
    """In a process of its own."""
    return spawn_server(unix_address, SERVER)


@pytest.fixture
def far(server, connect, unix_address) -> courier.Client[Any]:
    """A client of `server`."""
    return connect(unix_address)


@pytest.fixture(autouse=True)
def nothing_is_left() -> Iterator[None]:
    yield
    gc.collect()
    until(lambda: n_mapped() == n_open() == 0)


# What arrives.


def test_arrays_of_all_sizes_come_back_as_they_were(client, call) -> None:
    for n_bytes in (0, 1, 5000, 300_000, 3 * MB + 1):
        result = call(client, "echo", numbers(n_bytes))

        assert np.array_equal(result, numbers(n_bytes))
        assert result.flags.writeable
        assert is_shared(result) == (n_bytes >= segments.WORTHWHILE)


@pytest.mark.parametrize("text_bytes", [0, 400, 600, 10_000, 100_000])
def test_large_and_small_buffers_of_one_message_keep_their_order(client, text_bytes: int) -> None:
    value = {
        "text": "x" * text_bytes,
        "arrays": [numbers(n, first=n) for n in (MB, 10, 70_000, 5000, 65_536, 65_535, 2 * MB, 0)],
        "bytes": bytearray(b"y" * 300_000),
    }

    for _ in range(2):
        result = client.echo(value)

        assert result["text"] == value["text"]
        assert result["bytes"] == value["bytes"]
        assert all(map(np.array_equal, result["arrays"], value["arrays"]))
        assert is_shared(result["arrays"][0])
        courier.close(client)  # it opens again


def test_more_arrays_than_a_note_has_room_for_go_through_the_socket(client) -> None:
    arrays = [numbers(70_000, first=i) for i in range(3001)]

    assert client.total(*arrays) == sum(int(array.sum()) for array in arrays)


def test_small_calls_cost_nothing_more(client, python, unix_address) -> None:
    source = f"""
{begin_source()}
with courier.Client({unix_address!r}) as client:
    client.echo(b"x" * 200_000)
    print("launchpad.courier.shm.socket" in sys.modules, flush=True)
"""

    with python(source) as process:
        assert process.stdout.readline() == "False\n"


# Whose the memory is.


# Who dies.


CLIENT = """
import numpy as np

client = courier.Client({address!r})
kept = [client.give(1 << 20) for _ in range(3)]
client.keep(np.ones(1 << 20, np.uint8))
print("ready", flush=True)
sys.stdin.readline()
"""


def test_nothing_is_left_of_a_client_that_was_killed(server, far, python, unix_address) -> None:
    far.echo(1)
    with python(begin_source() + CLIENT.format(address=unix_address)) as process:
        assert process.stdout.readline() == "ready\n"
        assert n_open(server.pid) > 0
        os.kill(process.pid, signal.SIGKILL)

        until(lambda: n_open(server.pid) == 0)
    assert far.kept_total() == MB
    until(lambda: n_mapped(server.pid) == 1)  # they go a moment after the descriptors
    far.forget()
    until(lambda: n_mapped(server.pid) == 0)


def test_results_outlive_their_server_and_calls_go_on_with_the_next_one(
    spawn_server, connect, unix_address
) -> None:
    client = connect(unix_address)
    results = []
    for i in range(3):
        server = spawn_server(unix_address, SERVER)
        for _ in range(20):
            assert np.array_equal(client.echo(numbers(MB, first=i)), numbers(MB, first=i))
        assert n_open() == n_open(server.pid) == 1  # one segment serves call after call
        results.append(client.give(MB, i))
        os.kill(server.pid, signal.SIGKILL)
        server.wait()
    courier.close(client)

    assert [int(array[5]) for array in results] == [0, 1, 2]
    assert is_shared(results[2])
    results[2][:] = 9
    assert results[2].sum() == 9 * MB
    results.clear()
    until(lambda: n_mapped() <= 1)  # the segment of the argument, for other connections


def test_calls_in_flight_to_a_killed_server_have_an_unknown_outcome(server, far, call) -> None:
    call(far, "echo", numbers(MB))
    os.kill(server.pid, signal.SIGSTOP)
    in_flight = in_background(call, far, "echo", numbers(5 * MB))
    with pytest.raises(TimeoutError):
        in_flight.result(timeout=0.3)

    os.kill(server.pid, signal.SIGKILL)

    assert isinstance(in_flight.exception(20), courier.OutcomeUnknown)


def test_a_forked_client_has_arrays_and_connections_of_its_own(client) -> None:
    mine = [client.echo(np.full(MB, 5, np.uint8)) for _ in range(2)]

    def overwrite_one() -> int:
        mine[1][:] = 0
        return int(client.give(MB, 3).sum() + mine[0].sum()) - 8 * MB

    assert exit_code_of_child(overwrite_one) == 0
    assert mine[1].sum() == 5 * MB
    assert np.array_equal(client.echo(numbers(MB)), numbers(MB))


# What is not to be had.


def test_arguments_that_cannot_be_mapped_go_through_the_socket(server, far, call) -> None:
    call(far, "total", numbers(MB))  # a connection that shares, and a segment that is known
    call(far, "echo", 1)
    far.limit_descriptors(4)

    big = numbers(3 * MB)  # this needs another segment, whose descriptor the server cannot receive
    for _ in range(3):
        assert call(far, "total", big) == int(big.sum())

    assert n_mapped(server.pid) == 1


def test_results_that_cannot_be_mapped_come_through_the_socket_from_then_on(far) -> None:
    for _ in range(2):
        far.give(MB)
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (4, limits[1]))
    try:
        with pytest.raises(courier.OutcomeUnknown) as caught:
            far.give(3 * MB)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)

    assert "cannot be had" in str(caught.value.__cause__)
    result = far.give(3 * MB)
    assert result.sum() == 3 * MB
    assert not is_shared(result)


def test_without_shared_memory_arrays_go_through_the_socket(client, call, monkeypatch) -> None:
    def refuse(*_: object) -> int:
        raise PermissionError(1, "not in this container")

    monkeypatch.setattr(os, "memfd_create", refuse)

    assert call(client, "total", numbers(MB)) == int(numbers(MB).sum())
    assert n_open() == 0


def test_a_socket_that_is_forwarded_from_another_host_shares_nothing(client, monkeypatch) -> None:
    real = handshake.decode_server_hello
    monkeypatch.setattr(
        handshake, "decode_server_hello", lambda data: real(data)._replace(boot_id=b"another")
    )

    for _ in range(2):
        result = client.echo(numbers(MB))
        assert np.array_equal(result, numbers(MB))
        assert not is_shared(result)
    assert n_open() == 0


def test_a_relay_that_passes_no_descriptors_on_costs_no_argument(
    client, connect, short_directory, unix_address
) -> None:
    def reach_server() -> socket.socket:
        sock = socket.socket(socket.AF_UNIX)
        sock.connect(unix_address.removeprefix("unix:"))
        return sock

    path = str(short_directory / "relay")
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(path)
    os.chmod(path, 0o600)
    listener.listen()
    with contextlib.closing(Relay(listener, reach_server)):
        client = connect(f"unix:{path}")
        for _ in range(3):
            assert client.total(numbers(MB)) == int(numbers(MB).sum())
        courier.close(client)


# Limits, options, faults.


def test_too_large_a_message_is_refused_alone(serve, connect, methods, unix_address, call) -> None:
    serve(unix_address, max_bytes=2 * MB).bind_object(methods)
    client = connect(unix_address, max_bytes=MB)

    for _ in range(2):  # also where it was not yet known what the server takes
        with pytest.raises(courier.MessageTooLarge, match="arguments"):
            call(client, "echo", numbers(3 * MB))
    for _ in range(2):
        with pytest.raises(courier.MessageTooLarge, match="result"):
            call(client, "give", 2 * MB)
    for _ in range(2):
        assert len(call(client, "give", 700_000)) == 700_000


def test_options_apply_to_large_calls_and_errors_and_streams_arrive(client, call) -> None:
    for options in ({"timeout_s": 20.0}, {"compress": True}, {"idempotent": True}):
        with_options = client.with_options(**options)
        for i in range(3):
            array = numbers(MB, first=i)
            assert np.array_equal(call(with_options, "echo", array), array)
            with pytest.raises(ValueError, match="1048576 are too many"):
                call(with_options, "fail", array)
            assert list(call(with_options, "rows", array)) == [i, i + 1, i + 2]
            with pytest.raises(courier.MethodNotFound):
                call(with_options, "nothing", array)


def test_a_large_call_may_miss_its_deadline(client, methods) -> None:
    with pytest.raises(courier.DeadlineExceeded):
        client.with_options(timeout_s=0.2).wait(numbers(MB))
    methods.open()

    assert client.total(numbers(MB)) == int(numbers(MB).sum())


def test_large_calls_meet_faults_as_others_do(client) -> None:
    survived = 0
    with Faults(seed=5, drop_request=0.1, drop_response=0.1, cut=0.1, corrupt=0.1):
        for i in range(60):
            with contextlib.suppress(courier.OutcomeUnknown):
                assert np.array_equal(client.echo(numbers(MB, first=i)), numbers(MB, first=i))
                survived += 1
        courier.close(client)

    assert 10 < survived < 60
    assert np.array_equal(client.echo(numbers(MB)), numbers(MB))


def test_threads_that_call_at_once_do_not_mix_their_arrays(client, call) -> None:
    def work(first: int) -> None:
        for i in range(15):
            array = numbers(300_000 + 7 * first + i, first=first + i)
            assert np.array_equal(call(client, "echo", array), array)

    for thread in [in_background(work, i) for i in range(8)]:
        thread.result(60)


def test_a_thousand_large_calls_leave_nothing_behind(server, far, call) -> None:
    ends = [psutil.Process(), psutil.Process(server.pid)]
    array = numbers(300_000)

    def make_calls(n: int) -> None:
        for i in range(n):
            call(far, "echo", array[i:])

    def held() -> list[int]:
        gc.collect()
        return [n for end in ends for n in (n_mapped(end.pid), n_open(end.pid), end.num_fds())]

    make_calls(300)
    held_before, rss_before = held(), [end.memory_info().rss for end in ends]
    make_calls(1000)

    until(lambda: all(now <= was for now, was in zip(held(), held_before, strict=True)))
    for end, before in zip(ends, rss_before, strict=True):
        assert end.memory_info().rss - before < MB
