"""A ReplayNode in a program: real processes and threads, kills and stops."""

from __future__ import annotations

import itertools
import os
import pickle
import signal
import time
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


@pytest.mark.slow
def test_the_limiters_bounds_hold_after_every_step_of_several_inserters_and_samplers(
    tmp_path: Path,
) -> None:
    limiter = replay.SampleToInsertRatio(3, min_size_to_sample=10, error_buffer=7)
    table = replay_nodes.LoggedTable("t", replay.Uniform(), replay.Fifo(), 50, rate_limiter=limiter)
    table.path = str(tmp_path / "log")
    program = lp.Program("bounds")
    node = program.add_node(lp.ReplayNode([table]), label="replay")
    with program.group("inserter"):
        for _ in range(3):
            program.add_node(lp.PyNode(replay_nodes.insert_often, node, 100))
    with program.group("sampler"):
        for _ in range(2):
            program.add_node(lp.PyNode(replay_nodes.sample_often, node, 435, 20))

    results = lp.run(program, "test_mp", timeout_s=DEADLINE_S)

    assert (results["inserter"], results["sampler"]) == ([100] * 3, [435] * 2)
    steps = [line.split() for line in (tmp_path / "log").read_text().splitlines()]
    assert len(steps) == 300 + 870
    for what, size, diff in steps:
        if what == "sample":
            assert float(diff) >= limiter.min_diff
        elif int(size) > limiter.min_size_to_sample:
            assert float(diff) <= limiter.max_diff


@pytest.mark.slow
@pytest.mark.parametrize("launch_type", ["test_mt", "test_mp"])
def test_all_that_wait_end_with_the_program(launch_type: str) -> None:
    program = lp.Program("waits")
    tables = [replay.Table.queue("empty", 1), replay.Table.queue("full", 1)]
    node = program.add_node(lp.ReplayNode(tables), label="replay")
    waits = ["wait_for_samples", "wait_in_batches", "wait_to_insert"]
    for name in waits:
        program.add_node(lp.PyNode(getattr(replay_nodes, name), node), label=name)

    with lp.launch(program, launch_type) as running:
        client = node.dereference()

        def all_wait() -> bool:
            info = client.info()
            return info["empty"].waiting_samples == 2 and info["full"].waiting_inserts == 1

        until(all_wait)
        began = time.monotonic()
        running.stop()
        running.wait(DEADLINE_S)
        took_s = time.monotonic() - began

    assert {s.label: s.state for s in running.status() if s.label in waits} == dict.fromkeys(
        waits, "stopped"
    )
    assert took_s < 10  # and not the grace period


@pytest.mark.slow
def test_what_was_saved_is_there_again_when_the_server_was_killed() -> None:
    program = lp.Program("killed")
    table = replay.Table("t", replay.Fifo(), replay.Fifo(), 10_000)
    with program.group("replay", restart=AT_ONCE):
        node = program.add_node(lp.ReplayNode([table]))
    program.add_node(lp.PyNode(lp.wait_for_stop), label="keeps")

    with lp.launch(program, "test_mp") as running:
        client = node.dereference()
        for n in range(3):
            client.insert(n, {"t": 1.0})
        assert client.checkpoint() == 1
        client.insert(3, {"t": 1.0})
        kill(running, "replay-0")
        client.insert(4, {"t": 1.0})
        found = client.sample("t")
        info = client.info()["t"]
        client.delete("t", [each.info.key for each in found])
        (next_one,) = client.sample("t")

    assert (info.size, info.inserts) == (4, 4)
    assert [int(each.data) for each in (*found, next_one)] == [0, 1]


@pytest.mark.slow
def test_a_writer_goes_on_with_a_server_that_is_killed_and_started_again() -> None:
    program = lp.Program("writer")
    table = replay.Table("t", replay.Fifo(), replay.Fifo(), 10_000, max_times_sampled=1)
    with program.group("replay", restart=AT_ONCE):
        node = program.add_node(lp.ReplayNode([table]))
    program.add_node(lp.PyNode(replay_nodes.write_for_long, node, 400), label="writer")
    program.add_node(lp.PyNode(lp.wait_for_stop), label="keeps")

    with lp.launch(program, "test_mp") as running:
        client, saved = node.dereference(), 0
        for kills in range(1, 4):
            until(lambda n=saved: client.info()["t"].inserts > n + 20)
            client.checkpoint()
            saved = client.info()["t"].inserts - 2  # that may have come since
            kill(running, "replay-0", attempt=kills)
        assert running.results("writer", DEADLINE_S) == [397]
        found = client.sample("t", client.info()["t"].size)

    steps = [each.data["i"].tolist() for each in found]
    assert steps == [[*range(each[0], each[0] + 4)] for each in steps]
    assert len({each[0] for each in steps}) == len(steps)  # none is there twice
    assert [each[0] for each in steps[:20]] == [*range(20)]  # all that had been saved
    assert steps[-1][-1] == 399


@pytest.mark.slow
def test_a_caller_that_dies_in_the_line_takes_nothing_with_it() -> None:
    program = lp.Program("dies")
    node = program.add_node(lp.ReplayNode([replay.Table.queue("t", 10)]), label="replay")
    with program.group("caller", restart=AT_ONCE):
        program.add_node(lp.PyNode(replay_nodes.die_while_it_waits, node, 0))
    program.add_node(lp.PyNode(lp.wait_for_stop), label="keeps")

    with lp.launch(program, "test_mp") as running:
        client = node.dereference()
        assert running.results("caller", DEADLINE_S) == ["back"]
        until(lambda: client.info()["t"].waiting_samples == 0)
        client.insert(7, {"t": 1.0})
        found = client.sample("t", timeout_s=DEADLINE_S)

    assert int(found[0].data) == 7


def test_a_handle_goes_through_links_and_its_calls_are_counted() -> None:
    program = lp.Program("edges")
    node = program.add_node(lp.ReplayNode([queue("t")]), label="replay")
    slow = node.through(lp.edges.Delay(0.01))
    program.add_node(lp.PyNode(replay_nodes.insert_and_sample, slow, 3), label="caller")

    with lp.launch(program, "test_mt") as running:
        assert running.results("caller", DEADLINE_S) == [[0, 1, 2]]
        running.wait(DEADLINE_S)
    edges = running.edges()

    assert edges.total(caller="caller", method="insert").calls == 3
    assert edges.total(caller="caller", method="sample").waiting_s >= 3 * 0.01


@pytest.mark.slow
def test_the_next_launch_goes_on_with_the_tables_of_the_last(tmp_path: Path) -> None:
    sizes = []
    for n in itertools.count(1):
        program = lp.Program("twice")
        table = replay.Table("t", replay.Fifo(), replay.Fifo(), 10)
        node = program.add_node(lp.ReplayNode([table]), label="replay")
        program.add_node(lp.PyNode(lp.wait_for_stop), label="keeps")
        with lp.launch(program, "test_mp", state=str(tmp_path / "state")):
            client = node.dereference()
            client.insert(n, {"t": 1.0})
            sizes.append(client.info()["t"].size)
        if n == 2:
            break

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
def test_a_node_that_makes_no_sense_is_refused(
    make: Callable[[], Any], kind: type[Exception], says: str
) -> None:
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
