"""Connections with hosts by `fake_ssh`."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from launchpad.errors import LaunchError
from launchpad.launch.backends.ssh import connection
from launchpad.launch.backends.ssh.connection import Sent, SshConnections
from launchpad.launch.backends.ssh.hosts import Host
from tests.ssh import fake_ssh

HELLO_S = 5.0

# Passes stdin on to the host, {n_bytes} bytes each tenth of a second.
SLOW_LINE = """
"{python}" -c '
import os, sys, time
while True:
    piece = os.read(0, {n_bytes})
    if not piece:
        break
    os.write(1, piece)
    time.sleep(0.1)
' | sh -c "$3"
exit
"""


@pytest.fixture
def logins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    logins = tmp_path / "logins"
    monkeypatch.setattr(os, "environ", os.environ | fake_ssh.install(logins))
    monkeypatch.setattr(connection, "_HELLO_S", HELLO_S)
    return logins


@pytest.fixture
def connections(logins: Path, tmp_path: Path) -> Iterator[SshConnections]:
    project = tmp_path / "project"
    project.mkdir()
    sent = Sent(connection.archive(project), needs_gpus=False, run_id="run")
    connections = SshConnections(sent, tmp_path, *[lambda connected: None] * 3)
    yield connections
    connections.close()


def test_an_upload_may_take_longer_than_a_host_may_be_silent(
    connections: SshConnections, logins: Path
) -> None:
    upload_s = 2 * HELLO_S
    n_bytes = round(len(connections._sent.code) / upload_s / 10)
    (logins / "h1").write_text(SLOW_LINE.format(python=sys.executable, n_bytes=n_bytes))

    (connected,) = connections.connect([Host("h1")])

    assert connected.host == Host("h1")


def test_a_host_that_is_silent_after_the_login_is_named(
    connections: SshConnections, logins: Path
) -> None:
    (logins / "h1").write_text("exec sleep 1000")

    with pytest.raises(LaunchError, match="h1 has not answered for 5 s after the login"):
        connections.connect([Host("h1")])
