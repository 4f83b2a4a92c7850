"""The order of a server's calls: written down, and kept to."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import launchpad as lp
from launchpad.edges import recording
from launchpad.edges.recording import Recorder, Replayer, order_of
from tests.helpers import group_nodes
from tests.waiting import until

DEADLINE_S = 60


def methods_in(folder: Path) -> list[str]:
    lines = (folder / "adder-0.1.jsonl").read_text().splitlines()
    return [json.loads(line)[1] for line in lines]


def replayer(folder: Path, *calls: tuple[str, str], torn: str = "") -> Replayer:
    """Of these calls, by caller and method."""
    text = "".join(json.dumps(call) + "\n" for call in calls)
    (folder / "adder-0.1.jsonl").write_text(text + torn)
    order = order_of(lp.edges.Replay(folder), "adder-0", 1)
    assert isinstance(order, Replayer)
    return order


def test_a_recording_has_a_line_for_each_call_of_a_worker(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    callers = iter(["caller-0", "", "caller-1"])
    monkeypatch.setattr(recording, "_name_of_caller", lambda: next(callers))
    order = order_of(lp.edges.Record(tmp_path / "a"), "adder-0", 1)

    for method in ("add", "of_the_script", "names"):
        order.wrapped(method, lambda: None)()
    order.close()

    text = (tmp_path / "a" / "adder-0.1.jsonl").read_text()
    assert text == '["caller-0", "add"]\n["caller-1", "names"]\n'
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
        return lp.run(program, "test_mt", timeout_s=DEADLINE_S)["caller"]

    recorded = run(lp.edges.Record(tmp_path / "a"))
    replayed = run(lp.edges.Replay(tmp_path / "a"))

    calls = {file.name: len(file.read_text().splitlines()) for file in (tmp_path / "a").iterdir()}
    assert calls == {"adder-0.0.1.jsonl": 15, "adder-0.1.1.jsonl": 15}
    assert replayed == recorded


def test_calls_run_in_the_order_of_the_recording_and_others_after_it(tmp_path: Path) -> None:
    callers = ["caller-1", "caller-1", "caller-0"]
    order = replayer(tmp_path, *((name, "add") for name in callers), torn='["caller-0", "a')

    for name in callers:
        other = next(each for each in ("caller-0", "caller-1") if each != name)
        assert (order.may_begin(other, "add"), order.may_begin(name, "add")) == (False, True)
        order.begins(name, "add")

    for name in ("caller-1", "caller-0"):
        assert order.may_begin(name, "add")
        order.begins(name, "add")


def test_coroutines_begin_in_the_order_of_the_recording(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    callers = iter(["caller-0", "caller-1"])
    monkeypatch.setattr(recording, "_name_of_caller", lambda: next(callers))
    began: list[int] = []

    async def add(number: int) -> None:
        began.append(number)

    async def main() -> None:
        wrapped = replayer(tmp_path, ("caller-1", "add"), ("caller-0", "add")).wrapped("add", add)
        await asyncio.gather(wrapped(0), wrapped(1))

    asyncio.run(main())

    assert began == [1, 0]


def test_a_program_that_calls_otherwise_than_it_was_recorded_is_told_where(tmp_path: Path) -> None:
    order = replayer(tmp_path, ("caller-0", "names"), ("caller-0", "names"))

    says = (
        r"caller-0 calls add, which it does not any more in the recording .*adder-0\.1\.jsonl;"
        " there it goes on with names"
    )
    with pytest.raises(lp.ReplayError, match=says):
        order.may_begin("caller-0", "add")


def test_a_recording_that_lacks_this_worker_or_attempt_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(lp.DefinitionError, match="there is no recording in"):
        lp.edges.Replay(tmp_path)

    (tmp_path / "other-0.1.jsonl").write_text("")
    with pytest.raises(lp.ReplayError, match=r"is no recording .*adder-0\.2\.jsonl: No such"):
        order_of(lp.edges.Replay(tmp_path), "adder-0", 2)


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
    assert methods_in(tmp_path / "a") == (
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
