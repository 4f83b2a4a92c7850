"""A ReplayNode in a program: real processes and threads, kills and stops."""

from __future__ import annotations

import functools
import os
import pickle
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import launchpad as lp
from launchpad import replay
from launchpad.replay import ReplayClient
from tests.helpers import replay_nodes
from tests.waiting import pid_of, until

DEADLINE_S = 60
AT_ONCE = lp.RestartPolicy(max_restarts=10, backoff=0)


def fifo(max_times_sampled: int = 0) -> replay.Table:
    return replay.Table("t", replay.Fifo(), replay.Fifo(), 10_000, max_times_sampled)


def program_of(
    *tables: replay.Table, **callers: Callable[..., Any]
) -> tuple[lp.Program, lp.CourierHandle[Any]]:
    """These tables, and what calls them or does nothing, by label; with the handle of the tables."""
    program = lp.Program("replay")
    node = program.add_node(lp.ReplayNode(tables), label="replay")
    for label, function in callers.items():
        arguments = () if function is lp.wait_for_stop else (node,)
        program.add_node(lp.PyNode(function, *arguments), label=label)
    return program, node


@pytest.mark.slow
def test_all_that_wait_end_with_the_program() -> None:
    tables = [replay.Table.queue("empty", 1), replay.Table.queue("full", 1)]
    waits = ["wait_for_samples", "wait_in_batches", "wait_to_insert"]
    callers = {name: getattr(replay_nodes, name) for name in waits}
    program, node = program_of(*tables, **callers)

    with lp.launch(program, "test_mp") as running:
        client = node.dereference()

        def all_wait() -> bool:
            info = client.info()
            return info["empty"].waiting_samples == 2 and info["full"].waiting_inserts == 1

        until(all_wait)

    states = {s.label: s.state for s in running.status() if s.label in waits}
    assert states == dict.fromkeys(waits, "stopped")  # and not killed after the grace period


@pytest.mark.slow
def test_a_writer_goes_on_with_a_server_that_is_killed_and_started_again() -> None:
    write = functools.partial(replay_nodes.write_for_long, steps=400)
    program, node = program_of(fifo(max_times_sampled=1), writer=write, keeps=lp.wait_for_stop)

    with lp.launch(program, "test_mp", restart={"replay": AT_ONCE}) as running:
        client, saved = node.dereference(), 0
        for kills in range(1, 4):
            until(lambda n=saved: client.info()["t"].inserts > n + 20)
            assert client.checkpoint() == kills
            saved = client.info()["t"].inserts - 2  # that may have come since
            kill(running, "replay-0", attempt=kills)
        assert running.results("writer", DEADLINE_S) == [397]
        found = client.sample("t", client.info()["t"].size)

    steps = [each.data["i"].tolist() for each in found]
    assert steps == [[*range(each[0], each[0] + 4)] for each in steps]
    assert len({each[0] for each in steps}) == len(steps)  # none is there twice
    assert [each[0] for each in steps[:20]] == [*range(20)]  # all that had been saved
    assert steps[-1][-1] == 399


def test_the_next_launch_goes_on_with_the_tables_of_the_last(tmp_path: Path) -> None:
    sizes = []
    for n in range(2):
        program, node = program_of(fifo(), keeps=lp.wait_for_stop)
        with lp.launch(program, "test_mt", state=str(tmp_path / "state")):
            client = node.dereference()
            client.insert(n, {"t": 1.0})
            sizes.append(client.info()["t"].size)

    assert sizes == [1, 2]


def test_a_client_can_be_pickled_and_is_equal_to_its_copy() -> None:
    client = ReplayClient(lp.courier.Client("unix:/nowhere"))

    assert pickle.loads(pickle.dumps(client)) == client
    assert hash(pickle.loads(pickle.dumps(client))) == hash(client)


@pytest.mark.parametrize(
    ("make", "kind", "says"),
    [
        (lambda: lp.ReplayNode([]), lp.DefinitionError, "at least one table"),
        (
            lambda: lp.ReplayNode([queue("a"), queue("a")]),
            lp.DefinitionError,
            "two tables of the name 'a'",
        ),
        (lambda: lp.ReplayNode(["a"]), TypeError, "a list of lp.replay.Table, got 'a'"),
        (lambda: lp.ReplayNode([queue("a")], courier_kwargs={"x": 1}), TypeError, "unknown"),
    ],
)
def test_mistakes_are_refused(make: Callable[[], Any], kind: type[Exception], says: str) -> None:
    with pytest.raises(kind, match=says):
        make()


def queue(name: str) -> replay.Table:
    return replay.Table.queue(name, 1)


def kill(running: lp.Running, worker: str, attempt: int = 1) -> None:
    """Kills this attempt of it, and waits until the next one has begun."""
    (status,) = [s for s in running.status() if s.worker == worker]
    assert status.attempt == attempt
    os.kill(pid_of(running, worker), signal.SIGKILL)
    until(lambda: next(s for s in running.status() if s.worker == worker).attempt > attempt)
