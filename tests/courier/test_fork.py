"""F45: a process that forks with courier in use."""

from __future__ import annotations

import asyncio
import os

from launchpad import courier
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


def test_a_forked_child_keeps_no_connection_of_the_parents_event_loop(unix_client_of) -> None:
    client = unix_client_of(echo=lambda value: value)

    async def main() -> int:
        await client.aio.echo(1)
        (pipeline,) = client._channel.connections._loop_pipelines.values()
        fd = pipeline.reader._watched
        status = exit_code_of_child(lambda: os.path.exists(fd))
        assert await client.aio.echo(2) == 2
        return status

    assert asyncio.run(main()) == 0
