"""F45: a process that forks with courier in use."""

from __future__ import annotations

import asyncio
import os
import threading

import pytest

from launchpad import courier
from launchpad.courier import fork
from tests.courier.conftest import begin_source, exit_code_of_child, printed_by


def test_a_forked_child_has_connections_of_its_own(serve, socket_address) -> None:
    serve(socket_address, echo=lambda value: value)
    source = f"""{begin_source()}
import asyncio
import os
client = courier.Client({socket_address!r})
client.echo(0)
client.futures.echo(0).result()
pid = os.fork()
mine = os.getpid()
for i in range(50):
    assert client.echo((mine, i)) == (mine, i)
    assert client.futures.echo((mine, i)).result(10) == (mine, i)
courier.close(client)
if pid == 0:
    os._exit(0)
print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
"""

    assert printed_by(source) == "0\n"


def test_a_child_of_a_server_does_not_hide_its_death(socket_address, connect, python) -> None:
    source = f"""{begin_source()}
import os, time
def fork_and_hang():
    if os.fork() == 0:
        os.setsid()
        print(os.getpid(), flush=True)
    time.sleep(60)
server = courier.Server("parent", address={socket_address!r})
server.bind("fork_and_hang", fork_and_hang)
server.start()
server.join()
"""

    with python(source) as process:
        future = connect(socket_address).futures.fork_and_hang()
        assert process.stdout is not None
        child = int(process.stdout.readline())
        process.kill()
        error = future.exception(10)
        os.kill(child, 9)

    assert isinstance(error, courier.OutcomeUnknown)


@pytest.mark.parametrize("end", ["stop", "join"])
def test_a_server_is_the_parents_alone_and_a_child_does_not_wait_for_it(
    end: str, serve, unix_address, connect
) -> None:
    server = serve(unix_address, echo=lambda value: value)

    held, free = threading.Event(), threading.Event()

    def hold() -> None:
        with server._lock:
            held.set()
            free.wait()

    thread = threading.Thread(target=hold)
    thread.start()
    held.wait()
    status = exit_code_of_child(lambda: getattr(server, end)() is False)
    free.set()
    thread.join()

    assert status == 0
    assert connect(unix_address).echo(1) == 1


def test_a_forked_child_keeps_no_connection_of_the_parents_event_loop(unix_client_of) -> None:
    client = unix_client_of(echo=lambda value: value)

    async def main() -> int:
        await client.aio.echo(1)
        (pipeline,) = client._channel.connections._aio_pipelines.values()
        fd = pipeline.reader._watched
        status = exit_code_of_child(lambda: os.path.exists(fd))
        assert await client.aio.echo(2) == 2
        return status

    assert asyncio.run(main()) == 0


@pytest.mark.parametrize("make_lock", [threading.Lock, threading.RLock, threading.Condition])
def test_a_registered_lock_is_free_in_a_child_whoever_held_it(make_lock) -> None:
    lock = fork.free_in_child(make_lock())
    held, free = threading.Event(), threading.Event()

    def hold() -> None:
        with lock:
            held.set()
            free.wait()

    thread = threading.Thread(target=hold)
    thread.start()
    held.wait()
    status = exit_code_of_child(lambda: int(not lock.acquire(timeout=5)))
    free.set()
    thread.join()

    assert status == 0


def test_what_cannot_be_dropped_does_not_keep_a_child_from_dropping_the_rest(capfd) -> None:
    class Holder:
        is_dropped = False

        def drop_inherited(self) -> None:
            self.is_dropped = True
            raise KeyError("mine")

    holders = [Holder(), Holder()]
    for holder in holders:
        fork.drop_in_child(holder)

    status = exit_code_of_child(lambda: sum(holder.is_dropped for holder in holders))

    assert status == 2
    assert capfd.readouterr().err.count("KeyError: 'mine'") == 2
    assert not any(holder.is_dropped for holder in holders)


def test_a_future_whose_answer_was_just_being_read_ends_in_a_child_too(
    unix_client_of, monkeypatch
) -> None:
    """A thread had taken it out of the calls in flight, and unpickles its answer."""
    is_read, goes_on = threading.Event(), threading.Event()

    class Slow:
        def __reduce__(self):
            return _unpickle_late, ()

    monkeypatch.setattr("tests.courier.test_fork._events", (is_read, goes_on))
    client = unix_client_of(answer=Slow)

    future = client.futures.answer()
    is_read.wait()
    status = exit_code_of_child(
        lambda: int(not isinstance(future.exception(5), courier.OutcomeUnknown))
    )
    goes_on.set()

    assert status == 0
    assert future.result(20) == "unpickled"


_events = threading.Event(), threading.Event()


def _unpickle_late() -> str:
    is_read, goes_on = _events
    is_read.set()
    goes_on.wait()
    return "unpickled"
