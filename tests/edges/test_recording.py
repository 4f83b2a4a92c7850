"""The order of a server's calls: written down, and kept to."""

from __future__ import annotations

import asyncio
import json
import re
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import launchpad as lp
from launchpad.edges import recording
from launchpad.edges.recording import Recorder
from tests.helpers import group_nodes
from tests.waiting import until

DEADLINE_S = 60


def program_of(
    ordering: Any, *callers: tuple[Any, ...], server: Any = group_nodes.Adder
) -> lp.Program:
    """One server `adder`, and callers that run the functions given with it and further arguments."""
    program = lp.Program("order")
    adder = program.add_node(lp.CourierNode(server), label="adder").through(ordering)
    with program.group("caller"):
        for function, *arguments in callers:
            program.add_node(lp.PyNode(function, adder, *arguments))
    return program


def lines(folder: Path) -> list[list[str]]:
    return [json.loads(line) for line in (folder / "adder-0.1.jsonl").read_text().splitlines()]


def call_names(adder: Any) -> int:
    return len(adder.names())


def test_a_recording_has_a_line_for_each_call_of_a_worker_in_their_order(tmp_path: Path) -> None:
    program = program_of(lp.edges.Record(tmp_path / "a"), (group_nodes.add_often, 2), (call_names,))

    lp.run(program, "test_mp", timeout_s=DEADLINE_S)

    found = lines(tmp_path / "a")
    assert sorted(map(tuple, found)) == [
        ("caller-0", "add"),
        ("caller-0", "add"),
        ("caller-1", "names"),
    ]
    assert (tmp_path / "a").stat().st_mode & 0o077 == 0


def add_to_both(adders: list[Any], times: int) -> list[float]:
    values = [0.0, 0.0]
    for number in range(times):
        values = [adder.add(values[0] + number + lp.current().replica_index) for adder in adders]
    return values


def test_servers_in_one_worker_have_an_order_each(tmp_path: Path) -> None:
    def run(ordering: Any) -> list[list[float]]:
        adders = [lp.CourierNode(group_nodes.Adder) for _ in range(2)]
        handles = [adder.create_handle().through(ordering) for adder in adders]
        program = lp.Program("both")
        program.add_node(lp.MultiThreadingColocation(adders), label="adder")
        with program.group("caller"):
            for _ in range(3):
                program.add_node(lp.PyNode(add_to_both, handles, 5))
        return lp.run(program, "test_mp", timeout_s=DEADLINE_S)["caller"]

    recorded = run(lp.edges.Record(tmp_path / "a"))
    replayed = run(lp.edges.Replay(tmp_path / "a"))

    calls = {file.name: len(file.read_text().splitlines()) for file in (tmp_path / "a").iterdir()}
    assert calls == {"adder-0.0.1.jsonl": 15, "adder-0.1.1.jsonl": 15}
    assert replayed == recorded


def write(folder: Path, *calls: tuple[str, str], torn: str = "") -> Path:
    folder.mkdir()
    text = "".join(json.dumps(call) + "\n" for call in calls)
    (folder / "adder-0.1.jsonl").write_text(text + torn)
    return folder


def test_calls_run_in_the_order_of_the_recording_and_others_after_it(tmp_path: Path) -> None:
    order = [("caller-1", "add"), ("caller-1", "add"), ("caller-0", "add")]
    replay = lp.edges.Replay(write(tmp_path / "a", *order, torn='["caller-0", "a'))

    program = program_of(replay, (group_nodes.add_often, 3), (group_nodes.add_often, 2))
    program.add_node(lp.PyNode(lp.wait_for_stop), label="keeps")
    with lp.launch(program, "test_mp") as running:
        running.wait(DEADLINE_S, labels=["caller"])
        names = running.client("adder").names()

    assert names == ["caller-1", "caller-1", "caller-0", "caller-0", "caller-0"]


def test_a_program_that_calls_otherwise_than_it_was_recorded_fails_and_says_where(
    tmp_path: Path,
) -> None:
    replay = lp.edges.Replay(write(tmp_path / "a", ("caller-0", "names"), ("caller-0", "names")))

    with pytest.raises(lp.ProgramFailed) as failed:
        lp.run(program_of(replay, (group_nodes.add_often, 1)), "test_mp", timeout_s=DEADLINE_S)

    assert re.search(
        r"ReplayError: caller-0 calls add, which it does not any more in the recording .*adder-0\.1\.jsonl;"
        r" there it goes on with names",
        str(failed.value),
    )


def test_a_recording_that_lacks_this_worker_or_attempt_is_an_error(tmp_path: Path) -> None:
    folder = write(tmp_path / "a", ("caller-0", "add"))
    (folder / "adder-0.1.jsonl").rename(folder / "other-0.1.jsonl")

    with pytest.raises(
        lp.ProgramFailed, match=r"there is no recording .*adder-0\.1\.jsonl: No such"
    ):
        lp.run(
            program_of(lp.edges.Replay(folder), (group_nodes.add_often, 1)),
            "test_mp",
            timeout_s=DEADLINE_S,
        )


def test_replaying_what_was_never_recorded_is_refused_where_it_is_written(tmp_path: Path) -> None:
    with pytest.raises(lp.DefinitionError, match="there is no recording in"):
        lp.edges.Replay(tmp_path)


def test_one_server_has_one_order(tmp_path: Path) -> None:
    program = lp.Program("p")
    handle = program.add_node(lp.CourierNode(group_nodes.Adder), label="adder")
    one, other = lp.edges.Record(tmp_path / "a"), lp.edges.Record(tmp_path / "b")

    with pytest.raises(lp.DefinitionError, match="goes through one of Record and Replay"):
        handle.through(one).through(other)
    program.add_node(lp.PyNode(group_nodes.add_often, handle.through(one), 1), label="a")
    program.add_node(lp.PyNode(group_nodes.add_often, handle.through(other), 1), label="b")
    with pytest.raises(lp.DefinitionError, match=r"adder-0"):
        lp.launch(program, "test_mt")


class LaterAdder:
    """Coroutines of it begin in the order of the recording, and run beside each other."""

    def __init__(self) -> None:
        self.began: list[str] = []

    async def add(self, part: float) -> float:
        self.began.append(lp.caller().worker)
        return part

    def names(self) -> list[str]:
        return self.began


def test_coroutines_begin_in_the_order_of_the_recording(tmp_path: Path) -> None:
    order = [("caller-1", "add"), ("caller-0", "add")]
    replay = lp.edges.Replay(write(tmp_path / "a", *order))
    program = program_of(
        replay, (group_nodes.add_often, 1), (group_nodes.add_often, 1), server=LaterAdder
    )
    program.add_node(lp.PyNode(lp.wait_for_stop), label="keeps")

    with lp.launch(program, "test_mp") as running:
        running.wait(DEADLINE_S, labels=["caller"])
        assert running.client("adder").names() == ["caller-1", "caller-0"]


@pytest.fixture
def order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Recorder]:
    """Where all calls are those of `actor-0`."""
    monkeypatch.setattr(recording, "_name_of_caller", lambda: "actor-0")
    made = Recorder(tmp_path / "a" / "adder-0.1.jsonl")
    yield made
    made.close()


@pytest.mark.parametrize("is_turn_on_its_way", [False, True])
def test_a_coroutine_that_is_cancelled_before_it_begins_leaves_the_turn_to_others(
    tmp_path: Path, order: Recorder, is_turn_on_its_way: bool
) -> None:
    release, began, mishaps = threading.Event(), threading.Event(), []

    async def later() -> None:
        raise AssertionError("it was cancelled before it began")

    hold = order.wrapped("hold", lambda: (began.set(), release.wait(DEADLINE_S)))
    holder = threading.Thread(target=hold)

    async def main() -> None:
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(lambda _, what: mishaps.append(what))
        task = asyncio.create_task(order.wrapped("later", later)())
        await asyncio.sleep(0)  # now its thread waits
        if is_turn_on_its_way:
            release.set()
            holder.join(DEADLINE_S)
            until(lambda: order._running is not None)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        release.set()
        await asyncio.to_thread(holder.join, DEADLINE_S)
        await asyncio.to_thread(until, lambda: not turn_threads())
        await asyncio.sleep(0)

    holder.start()
    assert began.wait(DEADLINE_S)
    asyncio.run(main())

    assert order._running is None
    assert mishaps == []
    assert order.wrapped("next", lambda: 3)() == 3
    assert [method for _, method in lines(tmp_path / "a")] == (
        ["hold", "later", "next"] if is_turn_on_its_way else ["hold", "next"]
    )


def turn_threads() -> list[threading.Thread]:
    return [each for each in threading.enumerate() if each.name == "launchpad-turn"]


def test_a_coroutine_has_the_turn_until_it_first_waits(order: Recorder) -> None:
    seen: list[str] = []

    async def later() -> None:
        other = threading.Thread(target=order.wrapped("other", lambda: seen.append("other")))
        other.start()
        other.join(0.1)  # it would have run by now
        seen.append("first step")
        await asyncio.to_thread(other.join, DEADLINE_S)
        seen.append("second step")

    asyncio.run(order.wrapped("later", later)())

    assert seen == ["first step", "other", "second step"]
    assert order._running is None
