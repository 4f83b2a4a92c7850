"""Writers of trajectories: which items they make of which steps, and that steps are sent once."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import launchpad as lp
from launchpad import replay
from launchpad.courier.trees import flatten
from launchpad.replay.client import ReplayClient
from launchpad.replay.server import ReplayServer
from tests.helpers.direct_replay import Direct, items
from tests.replay.conftest import Serve
from tests.waiting import until


@pytest.fixture
def client() -> ReplayClient:
    return ReplayClient(Direct())


def leaves(value: Any) -> list[Any]:
    values: list[Any] = []
    flatten(value, values)
    return values


def test_an_item_has_any_steps_of_any_column_and_other_arrays(client: ReplayClient) -> None:
    writer = client.trajectory_writer(5)
    for i in range(5):
        writer.append({"o": np.full(2, i), "a": i})
    history = writer.history
    trajectory = [history["o"][-1], history["o"][1:3], (history["a"][0], np.array(9.5))]

    writer.create_item("t", 1.0, trajectory=trajectory)

    last, some, (first, second) = items(client)[0]
    assert (last.tolist(), some.tolist()) == ([4, 4], [[1, 1], [2, 2]])
    assert (first.shape, first, second) == ((), 0, 9.5)
    assert history["o"][1:3].numpy().tolist() == [[1, 1], [2, 2]]
    assert (len(history["a"]), writer.episode_steps) == (5, 5)


@given(
    length=st.integers(1, 4),
    per_call=st.integers(1, 4),
    wanted=st.lists(st.integers(0, 4), max_size=40),
)
def test_all_items_have_their_steps(length: int, per_call: int, wanted: list[int]) -> None:
    client, expected = ReplayClient(Direct()), []
    with client.trajectory_writer(length, per_call) as writer:
        for i, n in enumerate(wanted):
            if i % 7 == 6:
                writer.end_episode()
            writer.append((i, np.full((2, 2), i)))
            if 0 < n <= min(length, writer.episode_steps):
                writer.create_item("t", 1.0, num_steps=n)
                expected.append([*range(i - n + 1, i + 1)])

    stored = items(client)
    assert [steps.tolist() for steps, _ in stored] == expected
    assert all(array[:, 0, 0].tolist() == steps.tolist() for steps, array in stored)


def test_each_step_is_sent_once_and_all_again_to_a_server_that_has_lost_them() -> None:
    direct = Direct()
    client = ReplayClient(direct)
    writer = client.trajectory_writer(5)
    for i in range(5):
        writer.append(i)
        writer.create_item("t", 1.0, num_steps=i + 1)

    assert direct.steps == 5
    direct.restart()
    writer.append(5)
    writer.create_item("t", 1.0, num_steps=5)
    writer.flush()

    assert [each.tolist() for each in items(client)] == [[1, 2, 3, 4, 5]]
    assert direct.steps == 5 + 1 + 5


def test_the_server_forgets_a_writer_that_is_closed_or_whose_block_raises(serve: Serve) -> None:
    server = ReplayServer([replay.Table.queue("t", 9)])
    client = serve(served=server)

    with client.trajectory_writer(2) as closed:
        closed.append(1)
        closed.create_item("t", 1.0, trajectory=np.zeros(2))  # of no step
        closed.flush()
        assert len(server._windows) == 1
    assert not server._windows
    broken = client.trajectory_writer(2)
    broken.append(1)
    broken.create_item("t", 1.0, num_steps=1)
    broken.flush()
    assert len(server._windows) == 1
    with pytest.raises(ZeroDivisionError), broken:
        raise ZeroDivisionError
    until(lambda: not server._windows)
    unsent = client.trajectory_writer(2, items_per_call=2)
    unsent.append(1)
    unsent.create_item("no such table", 1.0, num_steps=1)
    with pytest.raises(lp.DefinitionError, match="no such table"):
        unsent.close()
    until(lambda: not server._windows)


def test_what_an_environment_does_to_its_arrays_later_does_not_matter(client: ReplayClient) -> None:
    frame = np.zeros(3)
    with client.trajectory_writer(2, items_per_call=10) as writer:
        for i in range(2):
            frame[:] = i
            writer.append({"o": frame})
        writer.create_item("t", 1.0, num_steps=2)
        frame[:] = 9

    assert items(client)[0]["o"].tolist() == [[0] * 3, [1] * 3]


def test_items_that_could_not_be_inserted_in_time_stay_and_come_once(serve: Serve) -> None:
    client = serve(replay.Table.queue("t", 2))
    writer = client.trajectory_writer(2, items_per_call=10)
    for i in range(4):
        writer.append(i)
        writer.create_item("t", 1.0, num_steps=1)

    with pytest.raises(TimeoutError):
        writer.flush(timeout_s=0.05)
    first = client.sample("t", 2)
    writer.flush(timeout_s=60)
    second = client.sample("t", 2)

    assert [int(each.data[0]) for each in (*first, *second)] == [0, 1, 2, 3]
    assert client.info()["t"].inserts == 4
    writer.close()


def test_items_that_wait_for_an_answer_arrive_without_another_call(serve: Serve) -> None:
    client = serve(replay.Table.queue("t", 1))
    writer = client.trajectory_writer(2)
    for i in range(4):
        writer.append(i)
        writer.create_item("t", 1.0, num_steps=min(i + 1, 2))
    until(lambda: client.info()["t"].waiting_inserts == 1)
    with pytest.raises(TimeoutError, match="items, the first one for table 't', could not be"):
        writer.flush(timeout_s=0.01)

    values = [client.sample("t", timeout_s=60)[0].data.tolist() for _ in range(4)]

    assert values == [[0], [0, 1], [1, 2], [2, 3]]
    writer.close()
    assert client.info()["t"].inserts == 4


def test_a_writer_waits_if_too_many_items_do(serve: Serve, threads: ThreadPoolExecutor) -> None:
    client, n_written = serve(replay.Table.queue("t", 1)), 0

    def write() -> None:
        nonlocal n_written
        with client.trajectory_writer(1) as writer:
            for i in range(100):
                writer.append(i)
                writer.create_item("t", 1.0, num_steps=1)
                n_written += 1

    writing = threads.submit(write)
    values: list[int] = []
    for _ in range(100):
        values += [int(each.data[0]) for each in client.sample("t", timeout_s=60)]
        assert n_written <= len(values) + 1 + 2 * 8  # in the table, under way, and waiting

    writing.result(60)
    assert values == [*range(100)]


class Subclass(np.ndarray):
    """An array with nothing more to it."""


FIRST = {"o": np.zeros(3), "r": 1.0}


@pytest.mark.parametrize(
    ("first", "other", "says"),
    [
        (FIRST, {"o": np.zeros(3), "r": 1}, r"\['r'\]: \('<i8', \(\)\) after \('<f8', \(\)\)"),
        (FIRST, {"o": np.zeros(4), "r": 1.0}, r"\['o'\]: \('<f8', \(4,\)\) after"),
        (FIRST, {"o": np.zeros(3)}, r"\['o'\]"),
        ("abc", "abcdef", "not like the first"),
        (np.datetime64("2020"), np.datetime64("2020-05"), "not like the first"),
        (np.zeros((2, 3)).view(Subclass), np.zeros((1, 3)).view(Subclass), "not like the first"),
    ],
)
def test_a_step_unlike_the_first_is_refused(
    client: ReplayClient, first: Any, other: Any, says: str
) -> None:
    writer = client.trajectory_writer(2)
    writer.append({"s": first})

    with pytest.raises(ValueError, match=says):
        writer.append({"s": other})

    writer.append({"s": first})
    writer.create_item("t", 1.0, num_steps=2)
    for leaf, expected in zip(leaves(items(client)[0]), leaves({"s": first}), strict=True):
        assert leaf.tolist() == [np.asarray(expected).tolist()] * 2


@pytest.mark.parametrize("value", [{"x": np.arange(2)}, (1.0,), [2.5]])
def test_a_dict_of_other_values_is_written_as_any(client: ReplayClient, value: Any) -> None:
    with client.trajectory_writer(1) as writer:
        for _ in range(3):
            writer.append({"o": value})
            writer.create_item("t", 1.0, trajectory=[each[-1] for each in leaves(writer.history)])

    values = [[leaf.tolist() for leaf in each] for each in items(client)]
    assert values == [[np.asarray(leaf).tolist() for leaf in leaves(value)]] * 3


def test_steps_that_are_not_kept_any_more_are_in_no_item(client: ReplayClient) -> None:
    writer = client.trajectory_writer(3)
    with pytest.raises(RuntimeError, match="append"):
        writer.history  # noqa: B018
    for i in range(5):
        writer.append({"r": i})

    says = "an item of 4 steps: this episode has 5, of which the last 3"
    with pytest.raises(ValueError, match=says):
        writer.create_item("t", 1.0, num_steps=4)
    with pytest.raises(ValueError, match="step 1 of this episode is not kept"):
        writer.history["r"][1]
    oldest = writer.history["r"][2]
    writer.append({"r": 5})
    with pytest.raises(ValueError, match="step 2 of this episode is not kept"):
        writer.create_item("t", 1.0, trajectory=oldest)
    with pytest.raises(IndexError, match="step 6 of an episode of 6"):
        writer.history["r"][6]
    with pytest.raises(TypeError, match="either"):
        writer.create_item("t", 1.0)
    writer.end_episode()
    with pytest.raises(ValueError, match="this episode has 0"):
        writer.create_item("t", 1.0, num_steps=1)


def test_steps_of_another_writer_or_episode_are_in_no_item(client: ReplayClient) -> None:
    writer, second = client.trajectory_writer(4), client.trajectory_writer(4)
    for i in range(3):
        writer.append({"x": float(i)})
        second.append({"x": 100.0 + i})
    theirs = second.history["x"]

    for steps in (theirs, theirs[-1], theirs[-2:]):
        with pytest.raises(ValueError, match="steps of another writer's history"):
            writer.create_item("t", 1.0, trajectory={"x": steps})
    writer.create_item("t", 1.0, trajectory={"x": theirs[-2:].numpy()})
    earlier = writer.history["x"][-2:]
    writer.end_episode()
    writer.append({"x": 9.0})
    with pytest.raises(ValueError, match="steps of an earlier episode"):
        writer.create_item("t", 1.0, trajectory=[earlier, writer.history["x"][-1]])

    assert [each["x"].tolist() for each in items(client)] == [[101.0, 102.0]]


@pytest.mark.parametrize(("table", "priority"), [("typo", 1.0), ("t", -1.0), ("t", np.nan)])
@pytest.mark.parametrize("per_call", [1, 3])
def test_a_writer_goes_on_after_an_item_that_is_refused(
    serve: Serve, table: str, priority: float, per_call: int
) -> None:
    client = serve(replay.Table("t", replay.Prioritized(1.0), replay.Fifo(), 100))
    writer = client.trajectory_writer(4, per_call)
    errors = []

    for i in range(6):
        is_bad = i == 1
        writer.append({"x": i})
        try:
            writer.create_item(table if is_bad else "t", priority if is_bad else 1.0, num_steps=1)
            if i >= 2:
                writer.flush(60)
        except (lp.DefinitionError, ValueError) as error:
            errors.append(str(error))

    assert len(errors) == 1
    assert {"typo": "no table 'typo'"}.get(table, "priorit") in errors[0]
    writer.close()
    assert sorted(int(x.data["x"][0]) for x in lasting(client)) == [0, 2, 3, 4, 5]
    assert not writer._sender._items


def lasting(client: ReplayClient) -> list[Any]:
    """Every item of a table whose items stay when they are sampled, once."""
    by_key = {each.info.key: each for each in client.sample("t", 500)}
    assert len(by_key) == client.info()["t"].size
    return [*by_key.values()]


def test_episodes_are_written_whole_where_an_item_is_refused(serve: Serve) -> None:
    client = serve(replay.Table("t", replay.Prioritized(1.0), replay.Fifo(), 100))
    priorities = itertools.chain([1.0, 1.0, -1.0], itertools.repeat(1.0))
    steps = client.n_step_writer("t", 3, 1.0, priority=lambda _: next(priorities))
    sequences = client.sequence_writer("typo", 4, 2)

    steps.add_first(0.0)
    for i in range(2):
        steps.add(i, 1.0, i + 1.0)
    with pytest.raises(ValueError, match="priorities of 0 or more"):
        steps.add(2, 1.0, 3.0, is_last=True)
    steps.add_first(0.0)
    steps.add(0, 1.0, 1.0, is_last=True)
    sequences.append({"r": 1.0})
    with pytest.raises(lp.DefinitionError, match="no table 'typo'"):
        sequences.end_episode()

    assert client.info()["t"].size == 4 + 1  # of five transitions, and of one
    assert sequences._writer.episode_steps == 0
    steps.close()
    sequences.close()


def masked() -> Any:
    return np.ma.masked_array([1.0, 2.0], [True, False])


REFUSE_MASKS: list[Callable[[ReplayClient], object]] = [
    lambda client: client.insert({"x": masked()}, {"t": 1.0}),
    lambda client: client.insert(np.ma.masked, {"t": 1.0}),
    lambda client: client.trajectory_writer(2).append({"x": masked()}),
    lambda client: client.sequence_writer("t", 2, 1).append([masked()]),
    lambda client: started(client).add(masked(), 0.0, np.ones(2)),
    lambda client: started(client).add(0, np.ma.masked, np.ones(2)),
    lambda client: started(client).add(0, 0.0, masked()),
]


def started(client: ReplayClient) -> replay.NStepWriter:
    writer = client.n_step_writer("t", 2, 0.9)
    writer.add_first(np.ones(2))
    return writer


@pytest.mark.parametrize("refuse", REFUSE_MASKS)
def test_a_masked_array_is_refused_where_it_is_given(
    client: ReplayClient, refuse: Callable[[ReplayClient], object]
) -> None:
    with pytest.raises(TypeError, match="masked array: replay would lose its mask"):
        refuse(client)


class Failing(replay.Uniform):
    """A selector of a user's with a bug."""

    def insert(self, key: int, priority: float) -> None:
        if priority == 7:
            raise KeyError("a bug")
        super().insert(key, priority)


def test_an_item_at_which_a_selector_raises_is_dropped() -> None:
    client = ReplayClient(Direct())
    client._server.server = ReplayServer([replay.Table("t", Failing(), replay.Fifo(), 9)])
    writer = client.trajectory_writer(2, items_per_call=10)
    for i in range(3):
        writer.append(i)
        writer.create_item("t", 7.0 if i == 1 else 1.0, num_steps=1)

    with pytest.raises(KeyError, match="a bug"):
        writer.flush()

    writer.flush()
    with pytest.raises(KeyError, match="a bug"):
        client.insert(1, {"t": 7.0})
