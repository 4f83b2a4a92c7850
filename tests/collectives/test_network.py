"""Where libraries that open sockets of their own are to listen."""

from __future__ import annotations

import socket

import pytest

import launchpad as lp
from launchpad.collectives import network
from launchpad.runtime import context


@pytest.mark.parametrize(
    ("listens_at", "address"),
    [("", "127.0.0.1"), ("tcp:10.0.0.5:0", "10.0.0.5"), ("tcp:[fd00::5]:0", "fd00::5")],
)
def test_the_address_is_that_for_other_hosts(listens_at: str, address: str) -> None:
    with lp.testing.worker():
        me = context.current()
        me.addresses.listens_at = listens_at

        assert network.own_address(me) == address


def test_a_free_port_can_be_listened_at() -> None:
    port = network.free_port("127.0.0.1")

    socket.create_server(("127.0.0.1", port)).close()


def test_the_interface_of_an_address_is_found() -> None:
    assert network.interface_of("127.0.0.1").startswith("lo")
    assert network.interface_of("192.0.2.1") == ""  # reserved for documentation
