"""The calls that wait at a server: in turn, with a limit, until their caller goes or the server stops."""

from __future__ import annotations

import pickle
import threading
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest

import launchpad as lp
from launchpad import courier, replay
from launchpad.replay import ReplayClient
from launchpad.replay.errors import ServerStopping
from launchpad.replay.server import ReplayServer
from tests.replay.conftest import Serve
from tests.waiting import until


def waiting(client: ReplayClient, inserts: int = 0, samples: int = 0) -> None:
    """Waits until so many calls do."""

    def found() -> bool:
        info = client.info()["t"]
        return (info.waiting_inserts, info.waiting_samples) == (inserts, samples)

    until(found)


def values(samples: list[Any]) -> list[int]:
    return [int(each.data) for each in samples]


def filled(client: ReplayClient, n: int) -> ReplayClient:
    """With so many items in `t`, their numbers as priorities."""
    for number in range(n):
        client.insert(number, {"t": float(number)})
    return client


def test_samples_wait_for_inserts_in_their_order(serve: Serve, threads: ThreadPoolExecutor) -> None:
    client = serve(replay.Table.queue("t", 100))
    futures: list[Future[Any]] = []
    for n in range(8):
        futures.append(threads.submit(client.sample, "t"))
        waiting(client, samples=n + 1)

    filled(client, 8)

    assert [values(future.result(60)) for future in futures] == [[n] for n in range(8)]


def test_inserts_wait_for_samples_in_their_order(serve: Serve, threads: ThreadPoolExecutor) -> None:
    client = filled(serve(replay.Table.queue("t", 2)), 2)
    futures = []
    for n in range(2, 8):
        futures.append(threads.submit(client.insert, n, {"t": 1.0}))
        waiting(client, inserts=n - 1)

    found = client.sample("t", 8)

    assert values(found) == [*range(8)]
    for future in futures:
        future.result(60)


def test_a_sample_of_several_waits_for_the_rest(serve: Serve, threads: ThreadPoolExecutor) -> None:
    client = serve(replay.Table.queue("t", 100))
    future = threads.submit(client.sample_batch, "t", 5)

    for n in range(5):
        waiting(client, samples=1)
        client.insert({"n": n}, {"t": 1.0})

    batch = future.result(60)
    assert batch.data["n"].tolist() == [0, 1, 2, 3, 4]
    assert batch.info.times_sampled.tolist() == [1] * 5


def test_a_wait_has_a_limit_and_what_was_sampled_by_then_is_given(serve: Serve) -> None:
    client = serve(replay.Table.queue("t", 2))
    with pytest.raises(TimeoutError, match=r"sample from table 't' within 0.05 s: TableInfo"):
        client.sample("t", timeout_s=0.05)
    filled(client, 2)
    with pytest.raises(TimeoutError, match="insert into table 't'"):
        client.insert(2, {"t": 1.0}, timeout_s=0.05)

    assert values(client.sample("t", 5, timeout_s=0.05)) == [0, 1]
    waiting(client)


def test_a_call_whose_caller_has_gone_leaves_the_line_and_takes_nothing(serve: Serve) -> None:
    client = serve(replay.Table.queue("t", 100))
    impatient = courier.Client(client._server.address, call_timeout=0.2)
    cancelled = client._server.futures.sample("t", 1, None)
    waiting(client, samples=1)
    assert cancelled.cancel()
    waiting(client)
    with pytest.raises(courier.DeadlineExceeded):
        ReplayClient(impatient).sample("t")
    future = impatient.with_options(timeout_s=None).futures.sample("t", 1, None)
    waiting(client, samples=1)
    courier.close(impatient)
    with pytest.raises(courier.CourierError):
        future.result(60)
    waiting(client)

    client.insert(7, {"t": 1.0})

    assert values(client.sample("t")) == [7]


def test_a_call_that_is_cancelled_before_it_begins_to_wait_leaves_nothing_in_the_line() -> None:
    server = ReplayServer([replay.Table.queue("t", 1)])

    server.sample("t", 1, None).close()

    assert server.info()["t"].waiting_samples == 0


def test_calls_that_wait_end_when_the_server_stops_and_were_not_carried_out(serve: Serve) -> None:
    server = ReplayServer([replay.Table.queue("t", 1)])
    client = filled(serve(served=server), 1)
    raw = client._server
    insert = raw.futures.insert("", 0, [], [(b"", [b"1"])], [("t", 1, 1.0, 0)], None)
    waiting(client, inserts=1)

    server.stop()

    with pytest.raises(ServerStopping, match="table 't' is being stopped"):
        insert.result(60)
    with pytest.raises(ServerStopping):
        raw.sample("t", 1, None)
    assert client.info()["t"].inserts == 1
    for call in (
        lambda: client.sample("t", timeout_s=0.05),
        lambda: client.insert(1, {"t": 1.0}, timeout_s=0.05),
    ):
        with pytest.raises(TimeoutError, match=r"within 0.05 s nothing but: table 't' is being"):
            call()


def test_an_insert_that_is_repeated_is_recognised(serve: Serve) -> None:
    client = serve(replay.Table.queue("t", 10))
    arguments = "", 0, [], [(b"", [b"1"])], [("t", 5, 1.0, 0), ("t", 6, 1.0, 0)], None

    for _ in range(3):
        client._server.insert(*arguments)

    assert client.info()["t"].inserts == 2
    assert len(client._server.sample("t", 10, None)[0]) == 2
    client._server.insert(*arguments)
    assert client.info()["t"].size == 0


def test_an_item_of_several_tables_waits_for_all(serve: Serve, threads: ThreadPoolExecutor) -> None:
    client = serve(*(replay.Table.queue(name, 1) for name in "tab"))
    client.insert(0, {"a": 1.0})

    future = threads.submit(client.insert, 1, {"t": 1.0, "a": 1.0, "b": 1.0})

    assert values(client.sample("t")) == [1]
    assert not future.done()
    assert client.info()["b"].size == 0
    assert values(client.sample("a", 2)) == [0, 1]
    assert values(client.sample("b")) == [1]
    future.result(60)


def test_what_learners_change_is_changed(serve: Serve) -> None:
    client = filled(serve(replay.Table("t", replay.MaxHeap(), replay.Fifo(), 10)), 4)
    (best,) = client.sample("t")

    changed = client.update_priorities("t", np.array([best.info.key, 12345]), np.array([0.5, 9.0]))

    assert changed == 1
    (second,) = client.sample("t")
    assert values([best, second]) == [3, 2]
    assert client.delete("t", [second.info.key, second.info.key]) == 1
    assert values(client.sample("t")) == [1]
    client.reset("t")
    assert (client.info()["t"].size, client.info()["t"].inserts) == (0, 0)


def test_an_update_wakes_what_may_go_on(serve: Serve, threads: ThreadPoolExecutor) -> None:
    client = filled(serve(replay.Table.queue("t", 1)), 1)
    future = threads.submit(client.insert, 1, {"t": 1.0})
    waiting(client, inserts=1)

    client.reset("t")

    future.result(60)
    assert values(client.sample("t")) == [1]


def test_mistakes_are_named(serve: Serve) -> None:
    client = serve(replay.Table("transitions", replay.Prioritized(1.0), replay.Fifo(), 10))

    with pytest.raises(lp.DefinitionError, match="Did you mean transitions"):
        client.insert(1, {"transition": 1.0})
    with pytest.raises(ValueError, match="finite"):
        client.insert(1, {"transitions": -1.0})
    with pytest.raises(ValueError, match="2 keys and 1 priorities"):
        client.update_priorities("transitions", [1, 2], [1.0])
    with pytest.raises(ValueError, match="1 sample or more"):
        client.sample("transitions", 0)
    assert client.info()["transitions"].size == 0


def test_what_is_saved_is_what_is_restored(serve: Serve) -> None:
    first, second = (
        ReplayServer([replay.Table("t", replay.Fifo(), replay.Fifo(), 10, 3), other])
        for other in (replay.Table.queue("q", 5), replay.Table.queue("new", 5))
    )
    client = serve(served=first)
    with client.trajectory_writer(3) as writer:
        for i in range(5):
            writer.append({"o": np.full((9, 9), i), "i": i})
            if i > 1:
                writer.create_item("t", 2.0 + i, num_steps=3)
    client.sample("t")
    before = client.info()["t"]

    second.restore(pickle.loads(pickle.dumps(first.save(), 5)))

    other = serve(served=second)
    assert other.info()["t"] == before
    assert other.info()["new"].size == 0
    found = other.sample("t", 6)
    assert [each.data["i"].tolist() for each in found[::3]] == [[0, 1, 2], [1, 2, 3]]
    assert [each.info.times_sampled for each in found[:2]] == [2, 3]
    assert [each.info.priority for each in found[::3]] == [4.0, 5.0]


def test_batches_are_sampled_ahead_and_end_when_they_are_closed_or_dropped(serve: Serve) -> None:
    client = serve(replay.Table("t", replay.Fifo(), replay.Fifo(), 10))
    client.insert({"n": 3}, {"t": 1.0})

    with client.batches("t", 4, prefetch=2) as batches:
        first = next(batches)
        until(lambda: client.info()["t"].samples == 4 * 4)  # one used, two queued, one in hand

    assert first.data["n"].tolist() == [3] * 4
    assert [*batches] == []
    dropped = client.batches("t", 1)
    next(dropped)
    del dropped
    until(lambda: not [t for t in threading.enumerate() if t.name == "replay-t"])


def test_batches_that_are_closed_while_they_wait_take_no_item_any_more(serve: Serve) -> None:
    client = serve(replay.Table.queue("t", 10))
    batches = client.batches("t", 2)
    waiting(client, samples=1)

    batches.close()

    waiting(client)
    assert filled(client, 1).info()["t"].size == 1


def test_what_goes_wrong_ahead_is_raised_where_the_batches_are_used(serve: Serve) -> None:
    client = serve(replay.Table("t", replay.Fifo(), replay.Fifo(), 10))

    batches = client.batches("t", 1, timeout_s=0.05)

    with pytest.raises(TimeoutError):
        next(batches)
    assert [*batches] == []
    with pytest.raises(ValueError, match="prefetch"):
        client.batches("t", 1, prefetch=0)
