"""The keys and values by which ranks find each other: waits, generations, counters."""

from __future__ import annotations

from typing import Any

import pytest

from launchpad.courier import Client
from tests.waiting import until


def test_a_get_waits_until_all_its_keys_are_set(client: Any) -> None:
    got = client.futures.store_get(1, ["a", "b"], 30.0)

    client.store_set(1, "b", b"2")
    until(lambda: client.n_kept() == (1, 1))
    assert not got.done()
    client.store_set(1, "a", b"1")

    assert got.result(30) == [b"1", b"2"]
    assert client.n_kept() == (1, 0)


def test_a_get_names_the_key_that_was_not_set_in_time(client: Any) -> None:
    client.store_set(1, "a", b"1")

    with pytest.raises(TimeoutError, match=r"'b' was not set within 0\.01 s"):
        client.store_get(1, ["a", "b"], 0.01)

    assert client.n_kept() == (1, 0)


def test_counting_comparing_appending_and_deleting_are_as_in_torch(client: Any) -> None:
    assert [client.store_add(1, "n", 2), client.store_add(1, "n", -5)] == [2, -3]
    assert client.store_get(1, ["n"], 1.0) == [b"-3"]

    assert client.store_compare_set(1, "k", b"", b"first") == b"first"
    assert client.store_compare_set(1, "k", b"other", b"second") == b"first"
    assert client.store_compare_set(1, "k", b"first", b"second") == b"second"
    assert client.store_compare_set(1, "absent", b"x", b"y") == b"x"

    client.store_append(1, "k", b"!")
    assert client.store_get(1, ["k"], 1.0) == [b"second!"]
    assert client.store_keys(1) == ["k", "n"]
    assert [client.store_delete(1, "k"), client.store_delete(1, "k")] == [True, False]


def test_a_generation_ends_with_its_keys_and_waits_and_the_next_is_empty(client: Any) -> None:
    client.store_set(1, "address", b"old")
    waiting = client.futures.store_get(1, ["more"], 60.0)
    until(lambda: client.n_kept() == (1, 1))

    client.store_set(2, "address", b"new")
    client.end(1)

    with pytest.raises(LookupError, match="generation 1 has ended"):
        waiting.result(30)
    with pytest.raises(LookupError, match="generation 1 has ended"):
        client.store_add(1, "n", 1)
    assert client.store_get(2, ["address"], 1.0) == [b"new"]
    assert client.n_kept() == (1, 0)


def test_a_wait_ends_with_its_caller(client: Any) -> None:
    with Client(client.address) as dies:
        dies.futures.store_get(1, ["never"], 60.0)
        until(lambda: client.n_kept() == (1, 1))

    until(lambda: client.n_kept()[1] == 0)
