"""Faults by a seed: what is lost on the way is an error that says what is known, and nothing runs twice."""

from __future__ import annotations

import pytest

from launchpad import courier
from launchpad.testing import Faults


def outcomes(client, n: int) -> dict[int, str]:
    """How each of `n` calls of `add(i)` ended."""
    found = {}
    for i in range(n):
        try:
            client.add(i)
            found[i] = "ok"
        except courier.CourierError as error:
            found[i] = type(error).__name__
    return found


def test_a_dropped_request_has_not_run_and_a_dropped_response_has(socket_client_of) -> None:
    ran: list[int] = []
    client = socket_client_of(add=ran.append)

    with Faults(seed=1, drop_request=0.5) as faults:
        requests = outcomes(client, 100)
    unknown = {i for i, how in requests.items() if how == "OutcomeUnknown"}
    assert len(unknown) == faults.counts["drop_request"] > 20
    assert not unknown & set(ran)

    courier.close(client)
    ran.clear()
    with Faults(seed=1, drop_response=0.5):
        responses = outcomes(client, 100)
    assert set(responses.values()) == {"ok", "OutcomeUnknown"}
    assert sorted(ran) == list(range(100))


@pytest.mark.parametrize("fault", ["cut", "corrupt"])
def test_a_request_that_is_cut_or_damaged_never_runs_twice(socket_client_of, fault) -> None:
    ran: list[int] = []
    client = socket_client_of(add=ran.append)

    with Faults(seed=2, **{fault: 0.3}) as faults:
        ended = outcomes(client, 200)

    assert faults.counts[fault] > 20
    assert len(ran) == len(set(ran))
    assert {i for i, how in ended.items() if how == "ok"} <= set(ran)
    assert not {i for i, how in ended.items() if how == "NotSent"} & set(ran)


def test_idempotent_calls_and_futures_all_complete(socket_client_of) -> None:
    ran: list[int] = []
    client = socket_client_of(add=ran.append).with_options(idempotent=True)

    with Faults(seed=5, drop_request=0.2, drop_response=0.2) as faults:
        ended = outcomes(client, 200)
        for start in range(200, 500, 10):  # ten at once are about one message there and one back
            for future in [client.futures.add(i) for i in range(start, start + 10)]:
                future.result(20)
        courier.close(client)

    assert set(ended.values()) == {"ok"}
    assert set(faults.counts) == {"drop_request", "drop_response"}
    assert set(ran) == set(range(500))


def test_the_same_seed_gives_the_same_faults(serve, connect, unix_address) -> None:
    serve(unix_address, add=lambda i: i)

    def run() -> dict[int, str]:
        with Faults(seed=4, drop_request=0.2, drop_response=0.1, cut=0.1):
            return outcomes(connect(unix_address), 100)

    assert run() == run()


def test_delays_change_nothing_but_the_time(unix_client_of) -> None:
    client = unix_client_of(add=lambda i: i)

    with Faults(delay=1.0, delay_s=0.001) as faults:
        ended = outcomes(client, 20)

    assert set(ended.values()) == {"ok"}
    assert faults.counts == {"delay": 40}


def test_two_sets_of_faults_at_once_and_a_probability_beyond_one_are_refused() -> None:
    with Faults(), pytest.raises(RuntimeError, match="at work in this process"), Faults():
        raise AssertionError("entered")
    with pytest.raises(ValueError, match="from 0 to 1"):
        Faults(cut=2)
