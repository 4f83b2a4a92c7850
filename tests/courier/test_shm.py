"""Large arrays in calls between processes of one host, which pass through shared memory."""

from __future__ import annotations

import contextlib
import gc
import os
import resource
import signal
import socket
import subprocess
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

from launchpad import courier
from launchpad.courier.protocol import handshake
from launchpad.courier.shm import segments
from launchpad.courier.transport.fault_injection import Faults
from tests.waiting import until

pytestmark = pytest.mark.skipif(not segments.IS_SUPPORTED, reason="shared memory needs Linux")

REPOSITORY = Path(__file__).parent.parent.parent
MB = 1 << 20

SERVER = """
import os, resource, sys; sys.path.insert(0, {repository!r})
import numpy as np
from launchpad import courier

kept = []

def keep(array):
    kept.append(array)
    return len(kept)

def overwrite(array):
    array[:] = 0
    return int(array.sum())

def give(n, value):
    kept.append(np.full(n, value, np.uint8))
    return kept[-1]

def spoil():
    for array in kept:
        array[:] = 0

def leave_no_descriptors():
    held = []
    try:
        while True:
            held.append(os.dup(0))
    except OSError:
        kept.append(held)

def fork():
    pid = os.fork()
    if pid == 0:
        for array in kept:
            array[:] = 0
        os._exit(0)
    return os.waitpid(pid, 0)[1]

server = courier.Server("victim", address={address!r})
for fn in (keep, overwrite, give, spoil, leave_no_descriptors, fork, kept.clear):
    server.bind(fn.__name__, fn)
server.bind("echo", lambda value: value)
server.bind("total", lambda *arrays: sum(int(array.sum()) for array in arrays))
server.bind("kept_total", lambda: sum(int(array.sum()) for array in kept))
server.bind("limit_descriptors", lambda n: resource.setrlimit(resource.RLIMIT_NOFILE, (n, n)))
server.start()
print("up", flush=True)
server.join()
"""


Spawn = Callable[..., "subprocess.Popen[str]"]


@pytest.fixture
def spawn(python, unix_address) -> Iterator[Spawn]:
    """Starts a server in a process of its own; returns when it is up."""
    with contextlib.ExitStack() as stack:

        def start(address: str = unix_address) -> subprocess.Popen[str]:
            source = SERVER.format(repository=str(REPOSITORY), address=address)
            process = stack.enter_context(python(source))
            assert process.stdout is not None
            assert process.stdout.readline() == "up\n"
            return process

        yield start


@pytest.fixture
def server(spawn) -> subprocess.Popen[str]:
    return spawn()


@pytest.fixture
def client(server, connect, unix_address) -> courier.Client:
    return connect(unix_address)


@pytest.fixture(autouse=True)
def nothing_is_left() -> Iterator[None]:
    yield
    gc.collect()
    until(lambda: n_mapped() == n_open() == 0)


def n_mapped(pid: int | str = "self") -> int:
    """Mappings of segments in a process."""
    return Path(f"/proc/{pid}/maps").read_text().count("memfd:courier")


def n_open(pid: int | str = "self") -> int:
    """Descriptors of segments in a process."""
    return sum("memfd:courier" in link for link in _links(pid))


def _links(pid: int | str) -> Iterator[str]:
    for fd in os.listdir(f"/proc/{pid}/fd"):
        with contextlib.suppress(FileNotFoundError):  # the one that lists them
            yield os.readlink(f"/proc/{pid}/fd/{fd}")


def is_shared(array: np.ndarray) -> bool:
    """Whether an array lies in a segment."""
    address = array.__array_interface__["data"][0]
    for line in Path("/proc/self/maps").read_text().splitlines():
        begin, end = (int(number, 16) for number in line.split()[0].split("-"))
        if begin <= address < end:
            return "memfd:courier" in line
    raise AssertionError("an array that is nowhere")


def numbers(n: int, first: int = 0) -> np.ndarray:
    return (np.arange(n) + first).astype(np.uint8)


# What arrives.


def test_arrays_of_all_types_and_sizes_come_back_as_they_were(client) -> None:
    for name in ("u1", "?", "f4", "c16", "S3", "i4,f8", "M8[s]"):
        dtype = np.dtype(name)
        for n in (0, 1, 5000, 300_000, MB, 3 * MB + 1):
            array = np.frombuffer(numbers(n // dtype.itemsize * dtype.itemsize), dtype).copy()

            result = client.echo(array)

            assert result.dtype == dtype
            assert result.tobytes() == array.tobytes()
            assert result.flags.writeable
            assert is_shared(result) == (result.nbytes >= segments.WORTHWHILE)


def test_arrays_of_all_shapes_come_back_as_they_were(client) -> None:
    cube = np.arange(2**20, dtype=np.int32).reshape(64, 128, 128)
    shapes = [cube, np.asfortranarray(cube), cube[::2, :, ::3], cube.T, cube[0, 0, 0], cube[:0]]

    for array in shapes * 2:
        result = client.echo(array)
        assert result.shape == array.shape
        assert np.array_equal(result, array)


def test_large_and_small_buffers_of_one_message_keep_their_order(client) -> None:
    value = {
        "text": "x" * 100_000,
        "arrays": [numbers(n, first=n) for n in (MB, 10, 70_000, 5000, 65_536, 65_535, 2 * MB, 0)],
        "bytes": bytearray(b"y" * 300_000),
    }

    for _ in range(2):
        result = client.echo(value)

        assert result["text"] == value["text"]
        assert result["bytes"] == value["bytes"]
        assert all(map(np.array_equal, result["arrays"], value["arrays"]))


@pytest.mark.parametrize("text_bytes", [0, 400, 600, 10_000])
def test_what_stands_beside_a_large_array_may_be_of_any_size(client, text_bytes: int) -> None:
    value = {"text": "x" * text_bytes, "array": numbers(MB)}

    result = client.echo(value)

    assert result["text"] == value["text"]
    assert np.array_equal(result["array"], value["array"])
    assert is_shared(result["array"])


def test_more_arrays_than_a_note_has_room_for_go_through_the_socket(client) -> None:
    arrays = [numbers(70_000, first=i) for i in range(3001)]

    assert client.total(*arrays) == sum(int(array.sum()) for array in arrays)


def test_read_only_arrays_can_be_sent_and_stay_read_only(client) -> None:
    array = numbers(MB)
    array.flags.writeable = False

    result = client.echo(array)

    assert np.array_equal(result, array)
    assert not result.flags.writeable


def test_small_calls_cost_nothing_more(spawn, python, unix_address) -> None:
    spawn()
    source = f"""
import sys; sys.path.insert(0, {str(REPOSITORY)!r})
from launchpad import courier
with courier.Client({unix_address!r}) as client:
    client.echo(b"x" * 200_000)
    print("launchpad.courier.shm.socket" in sys.modules, flush=True)
"""

    with python(source) as process:
        assert process.stdout.readline() == "False\n"


# Whose the memory is.


def test_the_server_may_write_to_what_it_was_given(client) -> None:
    array = numbers(MB)

    client.keep(array)
    client.spoil()

    assert np.array_equal(array, numbers(MB))


def test_what_the_server_does_later_does_not_change_a_result(client) -> None:
    for _ in range(2):
        result = client.give(MB, 7)
        client.spoil()
        assert np.all(result == 7)
    assert is_shared(result)


def test_what_the_client_does_to_a_result_does_not_change_the_servers(client) -> None:
    for _ in range(2):
        result = client.give(MB, 1)
        result[:] = 9
    assert is_shared(result)
    assert client.kept_total() == 2 * MB


def test_results_that_are_kept_are_not_written_over(client) -> None:
    kept = [client.echo(numbers(MB, first=i)) for i in range(20)]

    assert all(np.array_equal(array, numbers(MB, first=i)) for i, array in enumerate(kept))


def test_arguments_that_are_kept_are_not_written_over(client) -> None:
    arrays = [np.full(MB, i, np.uint8) for i in range(20)]

    for array in arrays:
        client.keep(array)

    assert client.kept_total() == sum(int(array.sum()) for array in arrays)


def test_more_results_may_be_kept_than_are_leased_at_once(client) -> None:
    kept = [client.echo(numbers(300_000, first=i)) for i in range(100)]

    assert all(np.array_equal(array, numbers(300_000, first=i)) for i, array in enumerate(kept))


def test_one_segment_serves_call_after_call(client, server) -> None:
    for i in range(20):
        assert np.array_equal(client.echo(numbers(MB, first=i)), numbers(MB, first=i))

    assert n_open() == n_open(server.pid) == 1


def test_a_result_outlives_connection_client_and_server(server, connect, unix_address) -> None:
    client = connect(unix_address)
    results = [client.give(MB, value) for value in (1, 2, 3)]

    courier.close(client)
    server.kill()
    server.wait()

    assert is_shared(results[2])
    assert [int(array[5]) for array in results] == [1, 2, 3]
    results[2][:] = 9
    assert results[2].sum() == 9 * MB


def test_a_client_that_was_closed_calls_again(client) -> None:
    for i in range(3):
        assert np.array_equal(client.echo(numbers(MB, first=i)), numbers(MB, first=i))
        courier.close(client)


# Who dies.


CLIENT = """
import os, sys; sys.path.insert(0, {repository!r})
import numpy as np
from launchpad import courier

client = courier.Client({address!r})
kept = [client.give(1 << 20, 1) for _ in range(3)]
client.keep(np.ones(1 << 20, np.uint8))
print("ready", flush=True)
sys.stdin.readline()
"""


def test_nothing_is_left_in_a_server_of_a_client_that_was_killed(
    server, client, python, unix_address
) -> None:
    client.echo(1)
    with python(CLIENT.format(repository=str(REPOSITORY), address=unix_address)) as process:
        assert process.stdout.readline() == "ready\n"
        assert n_open(server.pid) == 2
        os.kill(process.pid, signal.SIGKILL)

        until(lambda: n_open(server.pid) == 0)
    assert client.kept_total() == 4 * MB
    client.clear()
    until(lambda: n_mapped(server.pid) == 0)


def test_nothing_is_left_in_a_client_of_a_server_that_was_killed(server, client) -> None:
    kept = [client.give(MB, 1) for _ in range(3)]
    client.keep(numbers(MB))
    assert n_open() == 1

    os.kill(server.pid, signal.SIGKILL)

    server.wait()
    assert sum(int(array.sum()) for array in kept) == 3 * MB
    kept.clear()
    gc.collect()
    until(lambda: n_mapped() <= 1)  # the segment of the argument, for other connections


def test_calls_go_on_after_the_server_was_killed_and_started_anew(
    spawn, connect, unix_address
) -> None:
    client = connect(unix_address)
    for i in range(3):
        process = spawn()
        for _ in range(3):
            assert np.array_equal(client.echo(numbers(MB, first=i)), numbers(MB, first=i))
        process.kill()
        process.wait()


def test_calls_in_flight_when_the_server_is_killed_have_an_unknown_outcome(
    server, client, unix_address
) -> None:
    client.echo(numbers(MB))
    client.with_options(timeout_s=5.0)
    with ThreadPoolExecutor(1) as thread:
        os.kill(server.pid, signal.SIGSTOP)
        call = thread.submit(client.echo, numbers(5 * MB))
        with pytest.raises(TimeoutError):
            call.result(timeout=0.3)
        os.kill(server.pid, signal.SIGKILL)

        with pytest.raises(courier.OutcomeUnknown):
            call.result(timeout=20)


# Who forks.


def test_a_forked_client_has_arrays_and_connections_of_its_own(client) -> None:
    mine = [client.give(MB, 5) for _ in range(2)]
    pid = os.fork()
    if pid == 0:
        mine[1][:] = 0
        result = client.give(MB, 3)
        os._exit(int(result.sum() == 3 * MB and mine[0].sum() == 5 * MB))

    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 1
    assert mine[1].sum() == 5 * MB
    assert np.array_equal(client.echo(numbers(MB)), numbers(MB))


def test_a_fork_of_the_server_does_not_touch_its_arguments(client) -> None:
    client.keep(np.ones(MB, np.uint8))

    assert client.fork() == 0

    assert client.kept_total() == MB
    assert np.array_equal(client.echo(numbers(MB)), numbers(MB))


# What is not to be had.


def test_a_server_without_descriptors_takes_arguments_through_the_socket(client) -> None:
    client.echo(1)
    client.leave_no_descriptors()

    with pytest.raises(courier.NotSent):  # there is no descriptor for another connection either
        client.with_options(timeout_s=0.3, wait_for_ready=False).echo(numbers(MB))


def test_arguments_that_cannot_be_mapped_go_through_the_socket(server, client) -> None:
    client.total(numbers(MB))  # a connection that shares, and a segment that is known
    client.limit_descriptors(4)

    big = numbers(3 * MB)  # this needs another segment, whose descriptor the server cannot receive
    for _ in range(3):
        assert client.total(big) == int(big.sum())

    assert n_mapped(server.pid) == 1


def test_results_that_cannot_be_mapped_come_through_the_socket_from_then_on(client) -> None:
    client.give(MB, 1)
    client.give(MB, 1)
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (4, limits[1]))
    try:
        with pytest.raises(courier.OutcomeUnknown) as caught:
            client.give(3 * MB, 1)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)

    assert "cannot be had" in str(caught.value.__cause__)
    result = client.give(3 * MB, 1)
    assert result.sum() == 3 * MB
    assert not is_shared(result)


def test_where_no_file_in_memory_can_be_made_arrays_go_through_the_socket(
    client, monkeypatch
) -> None:
    def refuse(*_: object) -> int:
        raise PermissionError(1, "not in this container")

    monkeypatch.setattr(os, "memfd_create", refuse)

    assert client.total(numbers(MB)) == int(numbers(MB).sum())
    assert n_open() == 0


def test_a_socket_that_is_forwarded_from_another_host_shares_nothing(
    serve, connect, unix_address, monkeypatch
) -> None:
    serve(unix_address, echo=lambda value: value)
    client = connect(unix_address)
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
    server, connect, short_directory, unix_address
) -> None:
    path = str(short_directory / "relay")
    with _relay(path, unix_address.removeprefix("unix:")):
        client = connect(f"unix:{path}")
        for _ in range(3):
            assert client.total(numbers(MB)) == int(numbers(MB).sum())
        courier.close(client)


@contextlib.contextmanager
def _relay(path: str, to: str) -> Iterator[None]:
    def serve() -> None:
        with contextlib.suppress(OSError):
            while True:
                here = stack.enter_context(listener.accept()[0])
                there = stack.enter_context(socket.socket(socket.AF_UNIX))
                there.connect(to)
                for ends in ((here, there), (there, here)):
                    threads.append(threading.Thread(target=pump, args=ends))
                    threads[-1].start()

    def pump(one: socket.socket, other: socket.socket) -> None:
        while data := one.recv(65536):
            other.sendall(data)
        other.shutdown(socket.SHUT_WR)

    with socket.socket(socket.AF_UNIX) as listener, contextlib.ExitStack() as stack:
        listener.bind(path)
        os.chmod(path, 0o600)
        listener.listen()
        threads = [threading.Thread(target=serve)]
        threads[0].start()
        yield
        listener.shutdown(socket.SHUT_RDWR)
        for thread in threads:
            thread.join()


# Limits, options, faults.


def test_a_message_beyond_the_limit_is_refused_and_the_connection_survives(
    serve, connect, unix_address
) -> None:
    server = courier.Server("small", address=unix_address, max_bytes=2 * MB)
    server.bind("echo", lambda value: value)
    server.bind("give", lambda n: np.zeros(n, np.uint8))
    server.start()
    with courier.Client(unix_address, max_bytes=MB) as client:
        for _ in range(2):  # also where it was not yet known what the server takes
            with pytest.raises(courier.MessageTooLarge, match="arguments"):
                client.echo(numbers(3 * MB))
        for _ in range(2):
            with pytest.raises(courier.MessageTooLarge, match="result"):
                client.give(2 * MB)
        for _ in range(2):
            assert len(client.give(700_000)) == 700_000
    server.stop()


def test_options_apply_to_large_calls(client) -> None:
    for options in ({"timeout_s": 20.0}, {"compress": True}, {"idempotent": True}):
        for i in range(3):
            result = client.with_options(**options).echo(numbers(MB, first=i))
            assert np.array_equal(result, numbers(MB, first=i))


def test_a_large_call_may_miss_its_deadline(serve, connect, unix_address, gate) -> None:
    serve(unix_address, wait=lambda array: gate.wait(), total=lambda array: int(array.sum()))
    client = connect(unix_address)

    with pytest.raises(courier.DeadlineExceeded):
        client.with_options(timeout_s=0.2).wait(numbers(MB))
    gate.set()

    assert client.total(numbers(MB)) == int(numbers(MB).sum())


def test_an_error_after_a_large_argument_arrives(serve, connect, unix_address) -> None:
    def fail(array: np.ndarray) -> None:
        raise ValueError(f"{len(array)} are too many")

    serve(unix_address, fail=fail)
    client = connect(unix_address)

    for _ in range(3):
        with pytest.raises(ValueError, match="1048576 are too many"):
            client.fail(numbers(MB))


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


# Many.


def test_threads_that_call_at_once_do_not_mix_their_arrays(client) -> None:
    def call(first: int) -> bool:
        arrays = [numbers(300_000 + 7 * first + i, first=first + i) for i in range(15)]
        return all(np.array_equal(client.echo(array), array) for array in arrays)

    with ThreadPoolExecutor(8) as threads:
        assert all(threads.map(call, range(16)))


def test_clients_of_one_process_share_its_segments(spawn, connect, short_directory) -> None:
    addresses = [f"unix:{short_directory}/{i}" for i in range(3)]
    for address in addresses:
        spawn(address)
    clients = [connect(address) for address in addresses]

    for i in range(9):
        array = numbers(MB, first=i)
        assert clients[i % 3].total(array) == int(array.sum())

    assert n_open() == 1


@pytest.mark.slow
def test_five_thousand_large_calls_leave_nothing_behind(client, server) -> None:
    def state() -> tuple[int, ...]:
        pids = ("self", server.pid)
        return tuple(f(pid) for f in (n_mapped, n_open, n_descriptors) for pid in pids)

    def resident() -> list[int]:
        return [_resident(pid) for pid in ("self", server.pid)]

    array = numbers(300_000)
    for _ in range(1000):
        client.echo(array)
    gc.collect()
    before, resident_before = state(), resident()

    for i in range(5000):
        client.echo(array[i:])

    assert state() == before
    grown = [now - was for now, was in zip(resident(), resident_before, strict=True)]
    assert max(grown) < MB, grown


def n_descriptors(pid: int | str) -> int:
    return len(os.listdir(f"/proc/{pid}/fd"))


def _resident(pid: int | str) -> int:
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * resource.getpagesize()
