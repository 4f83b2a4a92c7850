"""A node that joins the launcher, over real connections."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any

import pytest

from launchpad.courier import Client, NotSent
from launchpad.courier.security import certificates
from launchpad.launch.backends import launcher_info
from launchpad.launch.backends.launcher_info import RunSecrets
from launchpad.launch.backends.remote import joined_node
from launchpad.launch.backends.remote.join_server import JoinServer
from launchpad.launch.backends.remote.node_connection import NodeConnection, NodeGone, NodeReady
from launchpad.launch.backends.remote.node_host import NodeHost
from launchpad.launch.backends.remote.parts import Part
from launchpad.launch.backends.remote.worker_host import HostReady
from launchpad.launch.large_buffers import LargeBuffer

DEADLINE_S = 60.0
READY = NodeReady(HostReady("here", "127.0.0.1"))


class Unreadable(LargeBuffer):
    @property
    def memory(self) -> memoryview:
        raise OSError("its file was removed")


class Joined:
    """A node that has joined a server, in a thread of its own.

    Attributes:
        connection: The launcher's end.
        node_error: The error with which the node has ended, or None.
    """

    def __init__(self) -> None:
        keys = RunSecrets(bytes(32), certificates.make_credentials())
        connected = Future[NodeConnection]()

        def on_join(key: object, connection: NodeConnection) -> bool:
            connected.set_result(connection)
            return True

        self.node_error = Future[Exception | None]()
        self._is_gone = threading.Event()
        self._server = JoinServer(
            "127.0.0.1",
            keys,
            on_join,
            lambda key, connection: self._is_gone.set(),
        )
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()
        self.connection = connected.result(DEADLINE_S)

    def _serve(self) -> None:
        host = NodeHost(READY.where, launcher_info.versions(), "")
        try:
            joined_node.serve(self._server.address, "a node", READY, host)
        except Exception as error:
            self.node_error.set_result(error)
        else:
            self.node_error.set_result(None)

    def why_gone(self) -> str:
        """Wait until the launcher has noticed that the node is gone, and return the reason."""
        assert self._is_gone.wait(DEADLINE_S)
        with pytest.raises(NodeGone) as gone:
            self.connection.renew().result(0)
        return str(gone.value)

    def close(self) -> None:
        self.connection.end()
        self._server.close()
        self._thread.join(DEADLINE_S)
        assert not self._thread.is_alive()


@pytest.fixture
def joined() -> Iterator[Joined]:
    joined = Joined()
    yield joined
    joined.close()


def test_a_node_that_joins_answers_calls_until_it_is_ended(joined: Joined) -> None:
    joined.connection.renew().result(DEADLINE_S)

    joined.connection.end()

    assert joined.node_error.result(DEADLINE_S) is None
    assert joined.why_gone() == "its connection has ended"


def test_a_node_is_gone_because_a_large_array_cannot_be_read(joined: Joined) -> None:
    call = joined.connection.call("w-0", "open", Unreadable(bytes(1)))

    with pytest.raises(NodeGone, match="large array cannot be sent to it: OSError: its file was"):
        call.result(DEADLINE_S)
    assert "its file was removed" in joined.why_gone()
    assert joined.node_error.result(DEADLINE_S) is None


class Unheard(Client):
    """A client that can call the launcher's `join`, but not its `answer`."""

    def with_options(self, **options: Any) -> Any:
        async def answer(key: object, part: Part) -> None:
            raise NotSent("connections end before anything is sent")

        return SimpleNamespace(aio=SimpleNamespace(answer=answer))


def test_a_node_that_cannot_answer_ends_rather_than_let_the_launcher_wait(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(joined_node, "Client", Unheard)
    joined = Joined()

    try:
        unanswered = joined.connection.renew()
        with pytest.raises(NodeGone):
            unanswered.result(DEADLINE_S)
        error = str(joined.node_error.result(DEADLINE_S))
    finally:
        joined.close()

    assert error == (
        "the launcher does not take answers: NotSent: connections end before anything is sent"
    )
