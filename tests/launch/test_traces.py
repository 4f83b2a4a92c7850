"""`running.trace()`: what workers do for some seconds. On every backend: tests/contract."""

from __future__ import annotations

import os
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest

import launchpad as lp
from examples.mapreduce.program import make_program
from examples.mapreduce.text import find_texts
from launchpad.courier.telemetry.recording import ANSWER, CALL, Recorded, RecordedThread
from launchpad.telemetry.trace import StateChange, Trace
from tests import nodes
from tests.helpers import perfetto, trace_events, traced_nodes
from tests.helpers.programs import single


@pytest.mark.slow
def test_a_worker_that_is_killed_meanwhile_is_named_and_its_next_attempt_is_recorded(
    tmp_path: Path,
) -> None:
    program = lp.Program("killed")
    counter = program.add_node(lp.CourierNode(nodes.Counter), label="counter")
    with program.group("caller", restart=lp.RestartPolicy(backoff=0.05)):
        program.add_node(lp.PyNode(traced_nodes.call_and_die, counter))

    with lp.launch(program, "test_mp") as running:
        running.client("counter").add()
        trace = running.trace(3)

    trace.save(tmp_path / "trace.json")
    events = trace_events.read(tmp_path / "trace.json")
    assert trace.missing.keys() == {("caller-0", 1)}
    assert "SIGKILL" in trace.missing["caller-0", 1]
    assert "missing: caller-0 " in str(trace)
    assert ("caller-0", 2) in trace.recorded
    assert any(e["ph"] == "i" and "SIGKILL" in e["name"] for e in events)
    states = [e["name"] for e in events if e.get("cat") == "state" and e["ph"] == "X"]
    assert "running (attempt 2)" in states


@pytest.mark.slow
def test_perfetto_reads_a_trace_of_mapreduce_and_joins_each_call_to_its_answer(
    tmp_path: Path,
) -> None:
    # So many that the recording has begun long before the last call.
    texts = find_texts(Path(os.__file__).parent, "*.py")
    with ThreadPoolExecutor(1) as pool:
        running = lp.launch(make_program(texts, 2, 2), "test_mp")
        tracing = pool.submit(running.trace, 60)  # it ends with the program
        running.wait(60)
    trace = tracing.result()
    trace.save(tmp_path / "trace.json")

    with perfetto.opened(tmp_path / "trace.json", tmp_path / "profile") as query:
        complaints = query("select name, value from stats where severity != 'info' and value > 0")
        joined = query(CALLERS_AND_SERVERS)

    assert complaints == []
    events = trace_events.read(tmp_path / "trace.json")
    names = trace_events.process_names(events)
    arrows = [(names[a["pid"]], names[b["pid"]]) for a, b in trace_events.flows(events)]
    # The first calls may have been made before the recording began.
    callers = {caller for caller, server in arrows if server.startswith("reducer-")}
    assert "coordinator-0" in callers
    assert {(caller, server): n for caller, server, n in joined} == Counter(arrows)


CALLERS_AND_SERVERS = """
include perfetto module slices.with_context;
select caller.name, server.name, count(*)
from flow
join thread_slice as call on call.id = flow.slice_out
join process as caller using (upid)
join thread_slice as answer on answer.id = flow.slice_in
join process as server on server.upid = answer.upid
group by 1, 2
"""


def test_a_trace_is_of_up_to_a_minute_and_of_a_program_that_runs() -> None:
    program = single(lp.CourierNode(nodes.Counter))

    with lp.launch(program, "test_mt") as running, pytest.raises(ValueError, match="up to 60 s"):
        running.trace(61)
    with pytest.raises(lp.NotRunningError, match="has ended"):
        running.trace(1)


@pytest.mark.parametrize("behind_ns", [0, 100_000])
def test_times_of_another_host_are_by_its_wall_clock_and_that_is_written(
    behind_ns: int,
) -> None:
    span = CALL, "learner-0", "step", 1_000, 9_000, 7, ""
    here = Recorded(
        "here", 1, b"a", 0, 0, 0, 10_000, 1, 0, [RecordedThread(5, "MainThread", [span])]
    )
    answer = ANSWER, "learner-0", "step", 500_003_000, 500_005_000, 7, ""
    there = replace(here, host="there", clock_id=b"b", clock_ns=500_000_000, wall_ns=-behind_ns)
    there = replace(there, threads=[RecordedThread(6, "learner-0-1", [answer])])
    changes = [StateChange("actor-0", 1, "running", 0, "")]
    recorded = {("actor-0", 1): here, ("learner-0", 1): there}

    trace = Trace("two", "two-1", recorded, changes, {}, 0, 10_000, 0, 0, b"a")

    [(call, answered)] = trace_events.flows(trace.events())
    assert (call["dur"], answered["dur"]) == (8, 2)
    assert answered["ts"] - call["ts"] == 2 - behind_ns / 1000
    assert min(call["ts"], answered["ts"]) >= 0
    assert "may differ: there" in str(trace)
