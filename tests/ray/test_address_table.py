"""Where servers are, and how each node reaches them."""

from __future__ import annotations

from launchpad.launch.backends.address_table import AddressTable


def test_a_server_is_reached_by_its_socket_on_its_node_and_by_tls_from_others() -> None:
    places = AddressTable()

    places.bind("ps-0/courier", "node a", ("unix:/run/ps", "tcp:10.0.0.1:7"))

    assert places.seen_from("node a") == {"ps-0/courier": "unix:/run/ps"}
    assert places.seen_from("node b") == {"ps-0/courier": "tcp:10.0.0.1:7"}


def test_a_port_is_the_same_from_everywhere() -> None:
    places = AddressTable()

    places.bind("ps-0/board", "node a", ("10.0.0.1:7",))

    assert places.seen_from("node a") == places.seen_from("node b")


def test_a_worker_that_has_ended_is_nowhere_until_it_binds_again() -> None:
    places = AddressTable()
    places.bind("ps-0/courier", "node a", ("unix:/run/ps", "tcp:10.0.0.1:7"))
    places.bind("ps-01/courier", "node a", ("unix:/run/other", "tcp:10.0.0.1:8"))

    lost = places.withdraw("ps-0")

    assert lost == ["ps-0/courier"]
    assert places.seen_from("node b", lost) == {"ps-0/courier": ""}
    assert places.seen_from("node b") == {"ps-01/courier": "tcp:10.0.0.1:8"}

    places.bind("ps-0/courier", "node b", ("unix:/run/ps", "tcp:10.0.0.2:9"))

    assert places.seen_from("node a", lost) == {"ps-0/courier": "tcp:10.0.0.2:9"}
