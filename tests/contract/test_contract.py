"""What a backend is, in code: every test here that takes a launch type runs on every backend.

It shows that each feature is there and reaches the workers; all cases of a feature stand with its own tests.
To try a backend of your own, register it (docs/backends/adding_a_backend.md) and run

    LP_CONTRACT_BACKENDS=my_cluster python -m pytest tests/contract
"""

from __future__ import annotations

import logging
import os
import re
import sys
import threading
import warnings
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import launchpad as lp
from launchpad import command_line
from launchpad.launch.supervision import supervisor
from tests import nodes
from tests.helpers import trace_events, traced_nodes
from tests.helpers.programs import failure_of, single
from tests.waiting import until

DEADLINE_S = 60


def counter_program(**options: Any) -> lp.Program:
    """One server and nothing else."""
    program = lp.Program("contract")
    program.add_node(lp.CourierNode(nodes.Counter, **options), label="counter")
    return program


def states(running: lp.Running) -> dict[str, str]:
    """How far each worker is."""
    return {status.worker: status.state for status in running.status()}


def wait_for_output(running: lp.Running, label: str, text: str, count: int = 1) -> None:
    """Until the workers of a group have printed it."""
    until(lambda: running.logs(label).count(text) >= count, DEADLINE_S)


# --- start and call ----------------------------------------------------------------------------


def test_a_program_of_objects_functions_and_coroutines_runs_to_its_end(launch_type: str) -> None:
    program = lp.Program("contract")
    counter = program.add_node(lp.CourierNode(nodes.Counter), label="counter")
    with program.group("caller"):
        for _ in range(2):
            program.add_node(lp.PyClassNode(nodes.Caller, counter))
    mailbox = program.add_node(lp.CourierNode(nodes.Mailbox), label="mailbox")
    program.add_node(lp.PyNode(nodes.post, mailbox), label="postman")
    program.add_node(lp.PyNode(nodes.exit_with, 0), label="leaver")

    running = lp.testing.run(program, DEADLINE_S, launch_type)

    ended = ["caller-0", "caller-1", "mailbox-0", "postman-0", "leaver-0"]
    ended_well = dict.fromkeys(ended, "succeeded")
    assert states(running) == {"counter-0": "stopped", **ended_well}
    assert "caller-1 counted" in running.logs("caller")
    assert re.findall(r"mailbox-0 has (.)", running.logs("mailbox")) == ["a", "b", "c"]
    with pytest.raises(KeyError, match="has no group 'conuter'"):
        running.logs("conuter")
    running.stop()
    running.stop()
    running.wait()


def test_the_script_calls_workers_by_clients_futures_and_handles(launch_type: str) -> None:
    program = lp.Program("unit test")
    handle = program.add_node(lp.CourierNode(nodes.Counter, start=5), label="counter")
    with program.group("e"):
        for start in (10, 20, 30):
            program.add_node(lp.CourierNode(nodes.Counter, start))

    with lp.launch(program, launch_type) as running:
        assert not running.is_done
        client = running.client("counter")
        assert client.add(2) == 7
        assert client.echo(1, key=[2]) == ((1,), {"key": [2]})
        assert handle.dereference().add() == 8
        with ThreadPoolExecutor(4) as pool:
            futures = list(pool.map(lambda _: client.futures.add(), range(100)))
        assert sorted(each.result(DEADLINE_S) for each in futures) == list(range(9, 109))
        assert running.client("e-2").add() == 31
        assert running.client("e", 1).add() == 21
        assert [client.add() for client in running.clients("e")] == [11, 22, 32]
        for unknown in ("e-3", "f"):
            with pytest.raises(KeyError, match=f"no group '{unknown}'"):
                running.client(unknown)
            with pytest.raises(KeyError, match=f"no group '{unknown}'"):
                running.clients(unknown)

    with pytest.raises(lp.NotRunningError, match=r"'unit test'.*Launch the program first"):
        handle.dereference()
    with pytest.raises(lp.NotRunningError, match="has ended"):
        running.client("counter")


def test_a_call_copies_its_arguments_and_raises_what_its_method_raised(launch_type: str) -> None:
    mine: list[Any] = [1]
    array = np.arange(100_000, dtype=np.float32)

    with lp.launch(counter_program(), launch_type) as running:
        client = running.client("counter")
        theirs = client.mutate(mine)
        (returned,), _ = client.echo(array)
        returned[0] = -1
        with pytest.raises(ValueError, match="boom") as caught:
            client.fail("boom")
        served = lp.courier.list_methods(client)
        with pytest.raises(lp.courier.MethodNotFound, match=r"counter-0 .* has no method 'ad_'"):
            client.ad_()
        assert client.add() == 1

    assert (mine, theirs) == ([1], [1, "changed by the server"])
    assert array[0] == 0
    np.testing.assert_array_equal(returned[1:], array[1:])
    assert "in fail" in str(caught.value.__cause__)
    assert {"add", "echo", "whoami"} <= set(served)
    assert {"run", "trap", "_hidden", "value", "__init__"}.isdisjoint(served)


def test_sound_07_a_client_of_the_script_has_what_its_node_gives_to_clients() -> None:
    class Table:
        @lp.idempotent
        def read(self, key: int) -> int:
            return key

        def wait(self) -> None:
            lp.wait_for_stop()

    program = lp.Program("options")
    program.add_node(lp.CourierNode(Table), label="table")
    hurried = lp.CourierNode(Table, courier_client_kwargs={"call_timeout": 0.2})
    program.add_node(hurried, label="hurried")

    with lp.launch(program, "test_mp") as running:
        table: Any = running.client("table")
        with lp.testing.Faults(seed=1, drop_response=0.3):  # the calls that are lost are made again
            assert [table.read(key) for key in range(30)] == list(range(30))
        with pytest.raises(lp.courier.DeadlineExceeded, match=r"within 0\.2 s"):
            running.client("hurried").wait()


def test_sound_14_code_of_the_script_is_nodes_arguments_and_exceptions(launch_type: str) -> None:
    factor = 3

    class LostShard(Exception):
        def __init__(self, *, shard: int) -> None:
            super().__init__(f"shard {shard} is lost")
            self.shard = shard

    class Local:
        def __init__(self, function: Any, pair: list[Any]) -> None:
            self.function = function
            self.pair = pair

        def apply(self, value: int) -> int:
            return int(self.function(value))

        def look_at_the_pair(self) -> list[Any]:
            return [self.pair[0] is self.pair[1], self.pair[0].value]

        def read(self) -> None:
            raise ExceptionGroup("no data", [LostShard(shard=3), KeyError("table")])

    deferred = lp.Deferred(nodes.Counter, start=1)
    program = lp.Program("local")
    local = lp.CourierNode(Local, lambda value: value * factor, [deferred, deferred])
    program.add_node(local, label="local")
    program.add_node(lp.PyNode(lambda: print("from a lambda")), label="lambda")
    program.add_node(lp.PyNode(lp.wait_for_stop), label="keeps")
    met: list[Any] = []

    with lp.launch(program, launch_type) as running:
        client = running.client("local")
        assert client.apply(14) == 42
        assert client.look_at_the_pair() == [True, 1], "a Deferred is built once, where it is used"
        try:
            client.read()
        except* LostShard as lost:
            met += [each.shard for each in lost.exceptions if isinstance(each, LostShard)]
        except* KeyError as missing:
            met += missing.exceptions[0].args
        running.wait(DEADLINE_S, labels=["lambda"])

    assert met == [3, "table"]
    assert running.logs("lambda") == "from a lambda\n"


def test_nodes_call_each_other_in_a_cycle_and_count_calls_by_caller(launch_type: str) -> None:
    a, b = lp.CourierNode(nodes.Relay), lp.CourierNode(nodes.Relay)
    a.configure(b.create_handle())
    b.configure(a.create_handle())
    program = lp.Program("ring")
    program.add_node(a, label="a")
    program.add_node(b, label="b")

    with lp.launch(program, launch_type) as running:
        client = running.client("a")
        assert client.relay(40) == 40
        of_a = lp.courier.server_stats(client).edges
        of_b = lp.courier.server_stats(running.client("b")).edges

    script = f"pid {os.getpid()}"
    assert {peer: of_a[peer]["relay"].calls for peer in of_a} == {"b-0": 20, script: 1}
    assert set(of_b) - {script} == {"a-0"}
    assert of_b["a-0"]["relay"].calls == 20
    assert of_b.get(script, {}).keys() <= {"courier/stats"}


@pytest.mark.slow
def test_a_trace_joins_both_ends_of_calls_and_shows_waits(launch_type: str, tmp_path: Path) -> None:
    program = lp.Program("traced")
    counter = program.add_node(lp.CourierNode(nodes.Counter), label="counter")
    with program.group("caller"):
        for _ in range(2):
            program.add_node(lp.PyNode(traced_nodes.call, counter))

    with lp.launch(program, launch_type) as running:
        counter_client = running.client("counter")
        until(lambda: counter_client.add(0) >= 4, DEADLINE_S)
        trace = running.trace(1)

    trace.save(tmp_path / "trace.json")
    events = trace_events.read(tmp_path / "trace.json")
    names = trace_events.process_names(events)
    joined = {
        (names[call["pid"]], call["cat"], names[answer["pid"]])
        for call, answer in trace_events.flows(events)
    }
    assert {
        (f"caller-{i}", kind, "counter-0") for i in (0, 1) for kind in ("call", "submit")
    } <= joined
    waits = {(names[e["pid"]], e["name"]) for e in events if e.get("cat") == "wait"}
    assert {("caller-0", "barrier 'all have called'"), ("caller-1", "wait_for_stop")} <= waits
    assert trace.missing == {}


# --- what a worker knows, takes over and prints -------------------------------------------------


def test_a_worker_knows_who_it_is_also_in_its_threads_and_methods(launch_type: str) -> None:
    program = lp.Program("who")
    with program.group("counter"):
        for _ in range(2):
            program.add_node(lp.CourierNode(nodes.Counter))
    server = program.add_node(lp.CourierNode(nodes.Namesake), label="server")
    program.add_node(lp.PyClassNode(nodes.Asker, server, 50), label="asker")
    program.add_node(lp.PyNode(lp.wait_for_stop), label="keeps")

    with lp.launch(program, launch_type) as running:
        first, second = running.clients("counter")
        me = second.whoami()
        in_a_thread = second.whoami_in_a_thread()
        other_seed = first.whoami()["seed"]
        running.wait(DEADLINE_S, labels=["asker"])

    del me["pid"]
    assert me.pop("seed") != other_seed
    assert in_a_thread == "counter-1"
    assert me == {
        "name": "counter-1",
        "label": "counter",
        "replica_index": 1,
        "num_replicas": 2,
        "attempt": 1,
        "launch_type": launch_type,
    }
    assert running.logs("server").split("\n").count("asked server-0") == 50
    assert "asked" not in running.logs("asker")
    assert "all said server-0" in running.logs("asker")


def test_sound_17_18_workers_have_one_hash_seed_and_log_warn_and_recurse_as_the_script_does(
    process_launch_type: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    root, before = logging.getLogger(), sys.getrecursionlimit()
    handler = logging.StreamHandler()
    handler.setFormatter(logging.Formatter("{levelname} of {name}: {message}", style="{"))
    monkeypatch.setattr(root, "handlers", [handler])
    monkeypatch.setattr(root, "level", logging.INFO)
    program = lp.Program("interpreters")
    with program.group("a"):
        for _ in range(2):
            program.add_node(lp.CourierNode(nodes.Interpreter))
    with program.group("b", resources=lp.Resources(env={"LC_NUMERIC": "C"})):  # by an exec
        program.add_node(lp.CourierNode(nodes.Interpreter))
    program.add_node(lp.PyNode(nodes.print_hash_and_fail_once), label="twice")
    restart = {"twice": lp.RestartPolicy(backoff=0.0)}

    sys.setrecursionlimit(before + 321)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("default")
            warnings.filterwarnings("error", message="sound 18", category=UserWarning)
            with lp.launch(program, process_launch_type, restart=restart) as running:
                clients = [*running.clients("a"), running.client("b")]
                hashes = {client.hash_of("word") for client in clients}
                settings = clients[0].settings()
                wait_for_output(running, "twice", ">", 2)
    finally:
        sys.setrecursionlimit(before)

    printed = re.findall(r"<(-?\d+)>", running.logs("twice"))
    assert len(printed) == 2
    assert len(hashes | set(map(int, printed))) == 1
    assert settings == {
        "recursion limit": before + 321,
        "log level": logging.INFO,
        "warning": "raised",
        "another": "shown",
        "asserts": True,
    }
    assert "INFO of here: this is at level INFO" in running.logs("a")


def test_everything_a_worker_prints_is_in_its_log(launch_type: str) -> None:
    program = lp.Program("prints")
    with program.group("printer"):
        for _ in range(2):
            program.add_node(lp.PyNode(nodes.print_many, 500))

    running = lp.testing.run(program, DEADLINE_S, launch_type)

    for i in range(2):
        lines = running.logs(f"printer-{i}").splitlines()
        assert [line for line in lines if " line " in line] == [
            f"printer-{i} line {n}" for n in range(500)
        ]
        assert "to stderr" in lines
        assert "no newline at the end" in running.logs(f"printer-{i}")


# --- the end -----------------------------------------------------------------------------------


def test_servers_alone_serve_until_the_stop_call_their_handlers_and_are_closed(
    launch_type: str,
) -> None:
    program = counter_program()
    program.add_node(lp.CourierNode(nodes.StopHandler), label="handler")
    program.add_node(lp.CourierNode(nodes.BadHandler), label="bad")
    program.add_node(lp.PyClassNode(nodes.FailsInRun), label="disabled")
    program.groups["disabled"][0].disable_run()  # type: ignore[attr-defined]
    running = lp.launch(program, launch_type)

    assert running.client("counter").add() == 1
    running.client("handler").register()
    running.client("bad").ping()
    with pytest.raises(TimeoutError, match="counter-0"):
        running.wait(0.1)
    running.stop()

    assert set(states(running).values()) == {"stopped"}
    assert "handler-0 handles the stop\nhandler-0 is closed\n" in running.logs("handler")
    assert "ValueError: the first handler" in running.logs("bad")
    assert "the second was called" in running.logs("bad")


def test_a_main_group_ends_the_program_without_failing_those_that_call_it(launch_type: str) -> None:
    program = lp.Program("main")
    with program.group("main", main=True):
        server = program.add_node(lp.CourierNode(nodes.ServesBriefly))
    with program.group("caller"):
        for _ in range(3):
            program.add_node(lp.PyClassNode(nodes.Pings, server))
    program.add_node(lp.PyClassNode(nodes.Loop), label="loop")

    running = lp.testing.run(program, DEADLINE_S, launch_type)

    assert states(running).items() >= {"main-0": "succeeded", "loop-0": "stopped"}.items()


@pytest.mark.slow
def test_a_stop_lets_workers_end_in_order_and_unwinds_who_never_asks(launch_type: str) -> None:
    members = [
        lp.PyClassNode(nodes.DeafLoop),
        lp.PyClassNode(nodes.Loop),
        lp.PyNode(nodes.lose_a_lock),
    ]
    program = lp.Program("stops")
    with program.group("loop"):
        for _ in range(2):
            program.add_node(lp.PyClassNode(nodes.Loop))
    program.add_node(lp.PyClassNode(nodes.DeafLoop), label="deaf")
    program.add_node(lp.PyNode(print, lp.Deferred(nodes.loop_for_ever)), label="deferred")
    program.add_node(lp.MultiThreadingColocation(members), label="both")
    program.add_node(lp.PyNode(nodes.lose_a_lock), label="condition")
    program.add_node(lp.PyClassNode(nodes.AsyncLoop), label="coroutine")
    running = lp.launch(program, launch_type)
    wait_for_output(running, "loop", "looping", count=2)
    for label in ("deferred", "condition"):
        wait_for_output(running, label, "looping")
    wait_for_output(running, "deaf", "deaf")
    wait_for_output(running, "coroutine", "begun")
    wait_for_output(running, "both", "looping", count=2)
    wait_for_output(running, "both", "deaf")

    running.stop()

    assert set(states(running).values()) == {"stopped"}
    assert not any("did not stop in time" in status.cause for status in running.status())
    assert running.logs("loop").count("stopped in good order") == 2
    assert "unwound" in running.logs("deaf")
    assert "unwound" in running.logs("both")
    assert "stopped in good order" in running.logs("both")
    assert "cleaned up" in running.logs("coroutine")
    assert running.exit_status() == 0
    running.wait()


@pytest.mark.slow
def test_a_run_that_waits_in_a_method_of_another_worker_is_unwound(
    launch_type: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(command_line, "termination_notice_s", lambda: 3.0)
    program = lp.Program("contract")
    numbers = program.add_node(lp.CourierNode(nodes.Numbers, 100), label="numbers")
    program.add_node(lp.PyClassNode(nodes.Taker, numbers), label="taker")

    with lp.launch(program, launch_type) as running:
        client = running.client("numbers")
        until(lambda: not client.n_left())
    (taker,) = (status for status in running.status() if status.worker == "taker-0")

    assert (taker.state, taker.cause) == ("stopped", "interrupted by the program's stop")


def test_any_thread_of_a_worker_stops_the_program_for_any_reason(launch_type: str) -> None:
    program = lp.Program("stop")
    program.add_node(lp.PyNode(nodes.stop_from_a_thread, ValueError("enough")), label="stopper")
    program.add_node(lp.PyClassNode(nodes.Loop), label="loop")

    lp.testing.run(program, DEADLINE_S, launch_type)


def test_a_method_stops_the_program_and_a_stop_handler_may_raise(launch_type: str) -> None:
    program = counter_program()
    program.add_node(lp.CourierNode(nodes.EndsWithABadHandler), label="handler")
    program.add_node(lp.PyClassNode(nodes.Loop), label="loop")
    running = lp.launch(program, launch_type)
    running.wait(DEADLINE_S, labels=["handler"])

    running.client("counter").stop_the_program()
    running.wait(DEADLINE_S)

    assert states(running)["handler-0"] == "succeeded"
    assert "ValueError: the first handler" in running.logs("handler")
    assert "the second was called" in running.logs("handler")


def test_f54_a_program_can_be_stopped_while_it_starts(launch_type: str) -> None:
    program = counter_program()
    with program.group("loop"):
        for _ in range(8):
            program.add_node(lp.PyClassNode(nodes.Loop))
    running = lp.launch(program, launch_type)

    running.stop()

    assert running.is_done


@pytest.mark.slow
def test_sound_03_what_python_waits_for_after_run_is_waited_for(process_launch_type: str) -> None:
    program = lp.Program("saving")
    with program.group("saver"):
        for kind in ("thread", "executor", "atexit"):
            program.add_node(lp.PyNode(nodes.leave_work, kind, 1))

    running = lp.testing.run(program, DEADLINE_S, process_launch_type)

    assert set(states(running).values()) == {"succeeded"}
    assert running.logs("saver").count("saved") == 3


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "awaited"),
    [("thread", "its thread 'saver'"), ("atexit", "registered with atexit")],
)
def test_sound_03_what_is_cut_off_after_run_is_named_and_no_success(
    process_launch_type: str, kind: str, awaited: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(supervisor, "_EXIT_S", 1.0)
    program = single(lp.PyNode(nodes.leave_work, kind, 1000), "saver")
    policy = lp.RestartPolicy(mode="never", stop_grace_s=0.1)

    running = lp.launch(program, process_launch_type, restart=policy)
    with pytest.raises(lp.ProgramFailed) as caught:
        running.wait(DEADLINE_S)

    ended = caught.value.outcome
    assert (ended.kind, ended.phase, ended.hung) == ("failed", "stop", True)
    assert "cut off" in ended.cause
    assert awaited in ended.cause
    assert "nodes.py" in running.logs("saver")  # its stacks
    assert running.exit_status() == 5


# --- failure -----------------------------------------------------------------------------------


def test_f21_f54_a_failure_is_reported_and_stops_its_own_program_alone(launch_type: str) -> None:
    program = counter_program()
    program.add_node(lp.PyClassNode(nodes.Loop), label="loop")
    program.add_node(lp.PyClassNode(nodes.FailsInRun), label="bad")

    with lp.launch(counter_program(), launch_type) as other:
        running = lp.launch(program, launch_type)
        with pytest.raises(KeyError, match="'typo'"):
            running.wait(labels=["typo"])
        with pytest.raises(lp.ProgramFailed) as caught:
            running.wait(["bad"])
        assert other.client("counter").add() == 1
        assert not other.is_done

    failure = caught.value
    assert (failure.worker, failure.phase) == ("bad-0", "run")
    assert failure.outcome.error_type == "ValueError"
    assert "in run" in failure.outcome.traceback
    assert Path(failure.log_path).exists()
    for part in ("bad-0", "ValueError: it broke", failure.log_path):
        assert part in str(failure)
    assert states(running) == {"counter-0": "stopped", "loop-0": "stopped", "bad-0": "failed"}


def test_a_failure_is_raised_by_the_with_block_too() -> None:
    program = single(lp.PyNode(nodes.fail_at_once), "bad")

    with pytest.raises(lp.ProgramFailed, match="bad-0"), lp.launch(program, "test_mt") as running:
        running.wait(DEADLINE_S, raise_error=False)


def test_sound_04_a_coroutine_that_raises_is_reported_with_the_frames_of_the_user_alone() -> None:
    failure = failure_of(single(lp.PyNode(nodes.fail_later)))

    assert "worker-0 failed in run (attempt 1): ValueError: it broke" in str(failure)
    frames = re.findall(r'File "(.*?)"', failure.outcome.traceback)
    assert [Path(frame).name for frame in frames] == ["nodes.py"]


def test_f13_a_handle_of_a_server_that_could_not_be_built_says_so(launch_type: str) -> None:
    program = lp.Program("unit test")
    handle = program.add_node(lp.CourierNode(nodes.FailsInInit, after_s=0.5), label="bad")
    running = lp.launch(program, launch_type)

    client = handle.dereference()
    with pytest.raises(lp.courier.WorkerFailed, match="no constructor for you") as told:
        client.ping()
    with pytest.raises(lp.ProgramFailed) as caught:
        running.wait(DEADLINE_S)

    assert told.value.server == "bad-0"
    assert (caught.value.worker, caught.value.phase) == ("bad-0", "init")


# --- threads of the script ----------------------------------------------------------------------


def test_sound_08_a_thread_of_the_script_is_one_more_worker(launch_type: str) -> None:
    names: list[str] = []
    may_end = threading.Event()

    def work() -> str:
        names.append(lp.current().name)
        may_end.wait(DEADLINE_S)
        return "returned"

    running = lp.launch(counter_program(), launch_type)
    running.thread_worker("mine", work)
    until(lambda: states(running).get("mine") == "running")
    may_end.set()
    results = running.results("mine", DEADLINE_S)
    running.wait(DEADLINE_S)

    assert (names, results) == (["mine"], ["returned"])
    assert states(running) == {"counter-0": "stopped", "mine": "succeeded"}


def test_sound_08_a_thread_of_the_script_that_raises_fails_the_program() -> None:
    running = lp.launch(counter_program(), "test_mp")

    running.thread_worker("mine", nodes.fail_at_once)

    with pytest.raises(lp.ProgramFailed, match=r"mine failed in run.*it broke"):
        running.wait(DEADLINE_S)
    assert running.exit_status() == 1


def test_sound_08_threads_of_the_script_that_are_in_a_call_or_never_ask_are_interrupted() -> None:
    def never_asks() -> None:
        while True:
            has_begun.set()

    has_begun = threading.Event()
    running = lp.launch(single(lp.CourierNode(nodes.Waiter), "waiter"), "test_mp")
    client = running.client("waiter")
    running.thread_worker("calls", client.wait)
    running.thread_worker("never asks", never_asks)
    until(lambda: client.number_of_calls())
    assert has_begun.wait(DEADLINE_S)

    running.stop()

    assert states(running) == {"waiter-0": "stopped", "calls": "stopped", "never asks": "stopped"}
    assert running.exit_status() == 0


# --- nodes of nodes ----------------------------------------------------------------------------


def test_colocations_and_caches_are_called_and_end(launch_type: str, tmp_path: Path) -> None:
    inside, apart = lp.CourierNode(nodes.Counter), lp.CourierNode(nodes.Counter)
    program = lp.Program("colocated")
    threads = [inside, lp.PyClassNode(nodes.Caller, inside.create_handle())]
    program.add_node(lp.MultiThreadingColocation(threads), label="threads")
    program.add_node(lp.PyNode(nodes.add_once, inside.create_handle()), label="outside")
    first = [lp.PyClassNode(nodes.DeafLoop), lp.PyNode(print, "first")]
    program.add_node(
        lp.MultiThreadingColocation(first, return_on_first_completed=True), label="first"
    )
    processes = [apart, lp.PyClassNode(nodes.Caller, apart.create_handle())]
    program.add_node(lp.MultiProcessingColocation(processes), label="processes")
    flaky = lp.PyNode(nodes.fail_once, str(tmp_path))
    program.add_node(lp.MultiProcessingColocation([flaky], num_retries_on_failure=1), label="flaky")
    counter = program.add_node(lp.CourierNode(nodes.Counter), label="counter")
    cacher = lp.CacherNode(counter, refresh_interval_ms=20, stale_after_ms=10_000)
    program.add_node(cacher, label="cacher")
    program.add_node(lp.PyNode(lp.wait_for_stop), label="keeps")

    with lp.launch(program, launch_type) as running:
        cached = running.client("cacher")
        assert cached.add(0) == 0
        running.client("counter").add(10)
        until(lambda: cached.add(0) == 10)
        running.wait(DEADLINE_S, labels=["outside", "first", "flaky"])
        wait_for_output(running, "threads", "threads-0 counted")
        wait_for_output(running, "processes", "processes-0.1 counted")

    ended = {status.worker: (status.state, status.attempt) for status in running.status()}
    assert ended.items() >= {("first-0", ("succeeded", 1)), ("flaky-0.0", ("succeeded", 2))}
    assert set(ended) > {"threads-0", "processes-0.0", "processes-0.1"}


def test_a_failure_inside_colocated_threads_fails_their_worker() -> None:
    members = [lp.PyClassNode(nodes.Loop), lp.PyClassNode(nodes.FailsInRun)]

    failure = failure_of(single(lp.MultiThreadingColocation(members)), "test_mt")

    assert "worker-0 failed in run (attempt 1): ValueError: it broke" in str(failure)


def test_a_server_whose_colocated_sibling_could_not_be_built_is_not_left_behind() -> None:
    members = [lp.CourierNode(nodes.BuiltWhenStopped), lp.CourierNode(nodes.FailsInInit)]

    failure = failure_of(single(lp.MultiThreadingColocation(members)), "test_mt")

    assert "worker-0 failed in init (attempt 1): RuntimeError: no constructor for" in str(failure)


# --- more than one -----------------------------------------------------------------------------


def test_f54_a_program_runs_twice_at_once_and_in_any_thread_on_its_seeds(launch_type: str) -> None:
    program = counter_program()

    def seed_of(running: lp.Running) -> int:
        return int(running.client("counter").whoami()["seed"])

    def launch_again() -> int:
        with lp.launch(program, launch_type) as three:
            return seed_of(three)

    with lp.launch(program, launch_type) as one, lp.launch(program, launch_type) as two:
        assert [each.client("counter").add() for each in (one, two)] == [1, 1]
        seeds = {seed_of(one), seed_of(two)}
    with ThreadPoolExecutor(1) as pool:
        seeds.add(pool.submit(launch_again).result(DEADLINE_S))

    assert len(seeds) == 1
