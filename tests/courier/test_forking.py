"""F45: a process that forks with courier in use."""

from __future__ import annotations

import os
from pathlib import Path

from launchpad import courier

REPOSITORY = Path(__file__).parent.parent.parent


def test_a_forked_child_has_connections_of_its_own(serve, unix_address, python) -> None:
    serve(unix_address, echo=lambda value: value)
    source = f"""
import os, sys; sys.path.insert(0, {str(REPOSITORY)!r})
from launchpad import courier
client = courier.Client({unix_address!r})
client.echo(0)
client.futures.echo(0).result()
pid = os.fork()
mine = os.getpid()
for i in range(300):
    assert client.echo((mine, i)) == (mine, i)
    assert client.futures.echo((mine, i)).result(10) == (mine, i)
courier.close(client)
if pid == 0:
    os._exit(0)
print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
"""

    with python(source) as process:
        output, _ = process.communicate(timeout=20)

    assert output == "0\n"


def test_a_child_of_a_server_does_not_hide_its_death(unix_address, connect, python) -> None:
    source = f"""
import os, sys, time; sys.path.insert(0, {str(REPOSITORY)!r})
from launchpad import courier
def fork_and_hang():
    if os.fork() == 0:
        os.setsid()
        print(os.getpid(), flush=True)
    time.sleep(60)
server = courier.Server("parent", address={unix_address!r})
server.bind("fork_and_hang", fork_and_hang)
server.start()
server.join()
"""

    with python(source) as process:
        future = connect(unix_address).futures.fork_and_hang()
        assert process.stdout is not None
        child = int(process.stdout.readline())
        process.kill()
        error = future.exception(10)
        os.kill(child, 9)

    assert isinstance(error, courier.OutcomeUnknown)
