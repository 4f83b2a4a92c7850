"""What a backend is, in code: every test here runs on every backend.

To try a backend of your own, register it (docs/backends/adding_a_backend.md) and run

    LP_CONTRACT_BACKENDS=my_cluster python -m pytest tests/contract
"""

from __future__ import annotations

import concurrent.futures
import logging
import os
import re
import sys
import threading
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import launchpad as lp
from launchpad import command_line
from tests import nodes
from tests.helpers import trace_events, traced_nodes
from tests.waiting import until

DEADLINE_S = 60


def counter_program(**options: Any) -> lp.Program:
    """One server and nothing else."""
    program = lp.Program("contract")
    program.add_node(lp.CourierNode(nodes.Counter, **options), label="counter")
    return program


def counting_program(callers: int = 3) -> lp.Program:
    """A server and some that call it once."""
    program = lp.Program("contract")
    counter = program.add_node(lp.CourierNode(nodes.Counter), label="counter")
    with program.group("caller"):
        for _ in range(callers):
            program.add_node(lp.PyClassNode(nodes.Caller, counter))
    return program


# --- start and call ----------------------------------------------------------------------------


def test_a_program_runs_to_its_end(launch_type: str) -> None:
    running = lp.testing.run(counting_program(), DEADLINE_S, launch_type)

    assert {s.worker: s.state for s in running.status()} == {
        "counter-0": "stopped",
        "caller-0": "succeeded",
        "caller-1": "succeeded",
        "caller-2": "succeeded",
    }


def test_launch_returns_before_the_program_ends(launch_type: str) -> None:
    with lp.launch(counter_program(), launch_type) as running:
        assert not running.is_done


def test_the_launching_script_calls_a_node(launch_type: str) -> None:
    with lp.launch(counter_program(start=5), launch_type) as running:
        client = running.client("counter")

        assert client.add(2) == 7
        assert client.echo(1, key=[2]) == ((1,), {"key": [2]})


def test_futures_from_many_threads_all_resolve(launch_type: str) -> None:
    with lp.launch(counter_program(), launch_type) as running:
        client = running.client("counter")
        with concurrent.futures.ThreadPoolExecutor(4) as pool:
            futures = list(pool.map(lambda _: client.futures.add(), range(100)))

        values = sorted(future.result(DEADLINE_S) for future in futures)

    assert values[-1] >= 1
    assert len(values) == 100


def test_nodes_call_each_other_through_handles(launch_type: str) -> None:
    with lp.launch(counting_program(callers=3), launch_type) as running:
        running.wait(DEADLINE_S, labels=["caller"])

    assert "caller-2 counted" in running.logs("caller")


def test_cycles_of_handles_work(launch_type: str) -> None:
    a, b = lp.CourierNode(nodes.Relay), lp.CourierNode(nodes.Relay)
    a.configure(b.create_handle())
    b.configure(a.create_handle())
    program = lp.Program("ring")
    program.add_node(a, label="a")
    program.add_node(b, label="b")

    with lp.launch(program, launch_type) as running:
        assert running.client("a").relay(40) == 40


def test_arguments_are_copied(launch_type: str) -> None:
    mine: list[Any] = [1]

    with lp.launch(counter_program(), launch_type) as running:
        theirs = running.client("counter").mutate(mine)

    assert mine == [1]
    assert theirs == [1, "changed by the server"]


def test_arrays_arrive_private_and_writable(launch_type: str) -> None:
    array = np.arange(100_000, dtype=np.float32)

    with lp.launch(counter_program(), launch_type) as running:
        (returned,), _ = running.client("counter").echo(array)
        returned[0] = -1

    assert array[0] == 0
    np.testing.assert_array_equal(returned[1:], array[1:])


def test_a_call_before_the_server_is_up_waits_for_it(launch_type: str) -> None:
    program = lp.Program("late")
    program.add_node(lp.CourierNode(nodes.StartsLate, 0.3), label="late")

    with lp.launch(program, launch_type) as running:
        assert running.client("late").when() > 0


def test_a_handle_gives_a_working_client_after_launch_and_none_after_the_end(
    launch_type: str,
) -> None:
    program = lp.Program("unit test")
    handle = program.add_node(lp.CourierNode(nodes.Counter), label="counter")

    with lp.launch(program, launch_type):
        assert handle.dereference().add() == 1

    with pytest.raises(lp.NotRunningError, match="program 'unit test'"):
        handle.dereference()


def test_sound_07_a_client_of_the_script_has_what_its_node_gives_to_clients(
    launch_type: str,
) -> None:
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

    with lp.launch(program, launch_type) as running:
        table: Any = running.client("table")
        with lp.testing.Faults(seed=1, drop_response=0.3):  # the calls that are lost are made again
            assert [table.read(key) for key in range(30)] == list(range(30))
        with pytest.raises(lp.courier.DeadlineExceeded, match=r"within 0\.2 s"):
            running.client("hurried").wait()


def test_sound_07_a_client_by_the_name_of_its_worker_and_those_of_a_group(launch_type: str) -> None:
    program = lp.Program("many")
    with program.group("e"):
        for start in (10, 20, 30):
            program.add_node(lp.CourierNode(nodes.Counter, start))

    with lp.launch(program, launch_type) as running:
        assert running.client("e-2").add() == 31
        assert running.client("e", 1).add() == 21
        assert [client.add() for client in running.clients("e")] == [11, 22, 32]
        for unknown in ("e-3", "f"):
            with pytest.raises(KeyError, match=f"no group '{unknown}'"):
                running.client(unknown)
            with pytest.raises(KeyError, match=f"no group '{unknown}'"):
                running.clients(unknown)


def test_code_of_the_launching_script_works_as_nodes(launch_type: str) -> None:
    factor = 3

    class Local:
        def __init__(self, function: Any) -> None:
            self.function = function

        def apply(self, value: int) -> int:
            return int(self.function(value))

    program = lp.Program("local")
    program.add_node(lp.CourierNode(Local, lambda value: value * factor), label="local")

    with lp.launch(program, launch_type) as running:
        assert running.client("local").apply(14) == 42


def test_a_lambda_works_as_a_node(launch_type: str) -> None:
    program = lp.Program("lambda")
    program.add_node(lp.PyNode(lambda: print("from a lambda")), label="lambda")

    assert lp.testing.run(program, DEADLINE_S, launch_type).logs("lambda") == "from a lambda\n"


def test_a_deferred_is_built_where_the_node_runs_once(launch_type: str) -> None:
    program = lp.Program("deferred")
    deferred = lp.Deferred(nodes.Counter, start=1)
    program.add_node(lp.CourierNode(nodes.Relay, [deferred, deferred]), label="holder")
    program.add_node(lp.CourierNode(_same_object, [deferred, deferred]), label="same")

    with lp.launch(program, launch_type) as running:
        assert running.client("same").whoami_of_pair() == [True, 1]


class _Pair:
    def __init__(self, pair: list[Any]) -> None:
        self.pair = pair

    def whoami_of_pair(self) -> list[Any]:
        return [self.pair[0] is self.pair[1], self.pair[0].value]


def _same_object(pair: list[Any]) -> _Pair:
    return _Pair(pair)


def test_a_server_counts_the_calls_of_each_worker_under_its_name(launch_type: str) -> None:
    a, b = lp.CourierNode(nodes.Relay), lp.CourierNode(nodes.Relay)
    a.configure(b.create_handle())
    b.configure(a.create_handle())
    program = lp.Program("ring")
    program.add_node(a, label="a")
    program.add_node(b, label="b")

    with lp.launch(program, launch_type) as running:
        client = running.client("a")
        client.relay(3)
        of_a = lp.courier.server_stats(client).edges
        of_b = lp.courier.server_stats(running.client("b")).edges

    script = f"pid {os.getpid()}"
    assert [of_a[peer]["relay"].calls for peer in ("b-0", script)] == [1, 1]
    assert set(of_a) == {"b-0", script}
    assert set(of_b) - {script} == {"a-0"}
    assert of_b["a-0"]["relay"].calls == 2
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


# --- who am I ----------------------------------------------------------------------------------


def test_a_worker_knows_who_it_is_also_in_its_threads(launch_type: str) -> None:
    program = lp.Program("who")
    with program.group("counter"):
        for _ in range(2):
            program.add_node(lp.CourierNode(nodes.Counter))

    with lp.launch(program, launch_type) as running:
        first, second = (running.client("counter", i) for i in range(2))
        me = second.whoami()
        in_a_thread = second.whoami_in_a_thread()
        other_seed = first.whoami()["seed"]

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


def test_methods_belong_to_their_servers_worker_however_often_they_are_called(
    launch_type: str,
) -> None:
    program = lp.Program("who")
    server = program.add_node(lp.CourierNode(nodes.Namesake), label="server")
    program.add_node(lp.PyClassNode(nodes.Asker, server, 50), label="asker")

    running = lp.testing.run(program, DEADLINE_S, launch_type)

    assert running.logs("server").split("\n").count("asked server-0") == 50
    assert "asked" not in running.logs("asker")
    assert "all said server-0" in running.logs("asker")


def test_seeds_are_the_same_at_every_launch(launch_type: str) -> None:
    seeds = []
    for _ in range(2):
        with lp.launch(counter_program(), launch_type) as running:
            seeds.append(running.client("counter").whoami()["seed"])

    assert seeds[0] == seeds[1]


# --- what is served ----------------------------------------------------------------------------


def test_only_public_methods_are_served(launch_type: str) -> None:
    with lp.launch(counter_program(), launch_type) as running:
        served = lp.courier.list_methods(running.client("counter"))

    assert {"add", "echo", "whoami"} <= set(served)
    assert {"run", "trap", "_hidden", "value", "__init__"}.isdisjoint(served)


def test_a_missing_method_names_itself_and_the_server(launch_type: str) -> None:
    with lp.launch(counter_program(), launch_type) as running:
        client = running.client("counter")

        with pytest.raises(lp.courier.MethodNotFound, match=r"counter-0 .* has no method 'ad_'"):
            client.ad_()


# --- exceptions --------------------------------------------------------------------------------


def test_a_remote_exception_arrives_as_its_own_type_with_the_remote_traceback(
    launch_type: str,
) -> None:
    with lp.launch(counter_program(), launch_type) as running:
        with pytest.raises(ValueError, match="boom") as caught:
            running.client("counter").fail("boom")

        assert running.client("counter").add() == 1

    assert "in fail" in str(caught.value.__cause__)


def test_sound_14_except_star_works_across_a_call_also_for_exceptions_of_the_script(
    launch_type: str,
) -> None:
    class LostShard(Exception):
        def __init__(self, *, shard: int) -> None:
            super().__init__(f"shard {shard} is lost")
            self.shard = shard

    class Data:
        def read(self) -> None:
            raise ExceptionGroup("no data", [LostShard(shard=3), KeyError("table")])

    program = lp.Program("groups")
    program.add_node(lp.CourierNode(Data), label="data")
    met: list[Any] = []

    with lp.launch(program, launch_type) as running:
        try:
            running.client("data").read()
        except* LostShard as lost:
            met += [each.shard for each in lost.exceptions if isinstance(each, LostShard)]
        except* KeyError as missing:
            met += missing.exceptions[0].args

    assert met == [3, "table"]


# --- the end -----------------------------------------------------------------------------------


def test_servers_do_not_keep_a_program_alive(launch_type: str) -> None:
    lp.testing.run(counting_program(1), DEADLINE_S, launch_type)


def test_servers_alone_serve_until_the_stop(launch_type: str) -> None:
    running = lp.launch(counter_program(), launch_type)

    assert running.client("counter").add() == 1
    with pytest.raises(TimeoutError, match="counter-0"):
        running.wait(0.1)

    running.stop()
    assert [s.state for s in running.status()] == ["stopped"]


def test_a_main_server_that_ends_does_not_fail_those_that_call_it(launch_type: str) -> None:
    program = lp.Program("main")
    with program.group("main", main=True):
        server = program.add_node(lp.CourierNode(nodes.ServesBriefly))
    with program.group("caller"):
        for _ in range(3):
            program.add_node(lp.PyClassNode(nodes.Pings, server))

    lp.testing.run(program, DEADLINE_S, launch_type)


def test_a_main_group_ends_the_program(launch_type: str) -> None:
    program = lp.Program("main")
    program.add_node(lp.PyClassNode(nodes.Loop), label="loop")
    with program.group("main", main=True):
        program.add_node(lp.PyNode(print, "main is done"))

    running = lp.testing.run(program, DEADLINE_S, launch_type)

    assert {s.worker: s.state for s in running.status()} == {
        "loop-0": "stopped",
        "main-0": "succeeded",
    }


def test_stop_from_the_script_lets_workers_end_in_good_order(launch_type: str) -> None:
    program = lp.Program("loops")
    with program.group("loop"):
        for _ in range(2):
            program.add_node(lp.PyClassNode(nodes.Loop))
    running = lp.launch(program, launch_type)
    _wait_for_output(running, "loop", "looping", count=2)

    running.stop()

    assert running.logs("loop").count("stopped in good order") == 2
    running.wait()


def test_a_run_that_never_asks_about_stopping_is_unwound(launch_type: str) -> None:
    program = lp.Program("deaf")
    program.add_node(lp.PyClassNode(nodes.DeafLoop), label="deaf")
    running = lp.launch(program, launch_type)

    running.stop()

    assert [s.state for s in running.status()] == ["stopped"]


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


def test_a_deferred_that_never_asks_about_stopping_is_unwound(launch_type: str) -> None:
    program = lp.Program("deferred")
    program.add_node(lp.PyNode(print, lp.Deferred(nodes.loop_for_ever)), label="deferred")
    running = lp.launch(program, launch_type)
    _wait_for_output(running, "deferred", "looping")

    running.stop()

    (status,) = running.status()
    assert status.state == "stopped"
    assert "did not stop in time" not in status.cause  # so not after its grace period


@pytest.mark.parametrize("reason", ["enough", 5, None, ValueError("enough")])
def test_any_reason_to_stop_will_do(launch_type: str, reason: Any) -> None:
    program = lp.Program("stop")
    program.add_node(lp.PyNode(nodes.stop_because, reason), label="stopper")
    program.add_node(lp.PyClassNode(nodes.Loop), label="loop")

    lp.testing.run(program, DEADLINE_S, launch_type)


def test_stop_from_a_thread_of_a_worker_ends_the_program_well(launch_type: str) -> None:
    program = lp.Program("stop")
    program.add_node(lp.PyNode(nodes.stop_from_a_thread), label="stopper")
    program.add_node(lp.PyClassNode(nodes.Loop), label="loop")

    lp.testing.run(program, DEADLINE_S, launch_type)


def test_stop_from_a_handler_ends_the_program_well(launch_type: str) -> None:
    running = lp.launch(counter_program(), launch_type)

    running.client("counter").stop_the_program()

    running.wait(DEADLINE_S)


def test_stopping_twice_and_after_the_end_is_fine(launch_type: str) -> None:
    running = lp.testing.run(counting_program(), DEADLINE_S, launch_type)

    running.stop()
    running.stop()
    running.wait()


def test_f54_a_program_can_be_stopped_while_it_starts(launch_type: str) -> None:
    running = lp.launch(counting_program(callers=8), launch_type)

    running.stop()

    assert running.is_done


# --- failure -----------------------------------------------------------------------------------


def test_a_failure_stops_the_others_and_names_worker_phase_cause_and_log(launch_type: str) -> None:
    program = lp.Program("fails")
    program.add_node(lp.PyClassNode(nodes.Loop), label="loop")
    program.add_node(lp.PyClassNode(nodes.FailsInRun), label="bad")

    with pytest.raises(lp.ProgramFailed) as caught:
        lp.testing.run(program, DEADLINE_S, launch_type)

    failure = caught.value
    assert (failure.worker, failure.phase) == ("bad-0", "run")
    assert failure.outcome.error_type == "ValueError"
    assert "in run" in failure.outcome.traceback
    assert Path(failure.log_path).exists()
    for part in ("bad-0", "ValueError: it broke", failure.log_path):
        assert part in str(failure)


def test_a_failure_is_raised_by_the_with_block_too(launch_type: str) -> None:
    program = counter_program()
    program.add_node(lp.PyNode(nodes.fail_at_once), label="bad")

    with pytest.raises(lp.ProgramFailed, match="bad-0"), lp.launch(program, launch_type) as running:
        running.wait(DEADLINE_S, raise_error=False)


def test_a_worker_that_exits_with_a_code_has_failed(launch_type: str) -> None:
    program = lp.Program("exits")
    program.add_node(lp.PyNode(nodes.exit_with, 3), label="bad")

    with pytest.raises(lp.ProgramFailed, match=r"SystemExit: 3"):
        lp.testing.run(program, DEADLINE_S, launch_type)


def test_a_part_of_a_process_colocation_is_tried_again(launch_type: str, tmp_path: Path) -> None:
    program = lp.Program("retries")
    node = lp.PyNode(nodes.fail_once, str(tmp_path))
    program.add_node(lp.MultiProcessingColocation([node], num_retries_on_failure=1), label="flaky")

    running = lp.testing.run(program, DEADLINE_S, launch_type)

    assert [(s.worker, s.state, s.attempt) for s in running.status()] == [
        ("flaky-0.0", "succeeded", 2)
    ]


# --- what a worker takes over from the script ----------------------------------------------------


def test_sound_17_all_workers_and_attempts_of_a_run_have_one_hash_seed(
    process_launch_type: str,
) -> None:
    program = lp.Program("hashes")
    with program.group("a"):
        for _ in range(2):
            program.add_node(lp.CourierNode(nodes.Interpreter))
    with program.group("b", resources=lp.Resources(env={"LC_NUMERIC": "C"})):  # by an exec
        program.add_node(lp.CourierNode(nodes.Interpreter))
    program.add_node(lp.PyNode(nodes.print_hash_and_fail_once), label="twice")
    restart = {"twice": lp.RestartPolicy(backoff=0.0)}

    with lp.launch(program, process_launch_type, restart=restart) as running:
        clients = running.client("a", 0), running.client("a", 1), running.client("b")
        hashes = {client.hash_of("word") for client in clients}
        _wait_for_output(running, "twice", ">", 2)

    printed = re.findall(r"<(-?\d+)>", running.logs("twice"))
    assert len(printed) == 2
    assert len(hashes | set(map(int, printed))) == 1


def test_sound_18_workers_log_warn_and_recurse_as_the_script_does(
    process_launch_type: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    root, before = logging.getLogger(), sys.getrecursionlimit()
    handler = logging.StreamHandler()
    handler.setFormatter(logging.Formatter("{levelname} of {name}: {message}", style="{"))
    monkeypatch.setattr(root, "handlers", [handler])
    monkeypatch.setattr(root, "level", logging.INFO)
    sys.setrecursionlimit(before + 321)
    program = lp.Program("settings")
    program.add_node(lp.CourierNode(nodes.Interpreter), label="a")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("default")
            warnings.filterwarnings("error", message="sound 18", category=UserWarning)
            with lp.launch(program, process_launch_type) as running:
                settings = running.client("a").settings()
    finally:
        sys.setrecursionlimit(before)

    assert settings == {
        "recursion limit": before + 321,
        "log level": logging.INFO,
        "warning": "raised",
        "another": "shown",
        "asserts": True,
    }
    assert "INFO of here: this is at level INFO" in running.logs("a")


# --- coroutines ---------------------------------------------------------------------------------


def test_sound_04_coroutines_run_to_their_end_on_the_loop_of_the_async_methods(
    launch_type: str,
) -> None:
    program = lp.Program("letters")
    mailbox = program.add_node(lp.CourierNode(nodes.Mailbox), label="mailbox")
    program.add_node(lp.PyNode(nodes.post, mailbox), label="postman")

    running = lp.testing.run(program, DEADLINE_S, launch_type)

    assert {s.worker: s.state for s in running.status()} == {
        "mailbox-0": "succeeded",
        "postman-0": "succeeded",
    }
    assert re.findall(r"mailbox-0 has (.)", running.logs("mailbox")) == ["a", "b", "c"]


def test_sound_04_a_coroutine_that_is_to_stop_is_cancelled(launch_type: str) -> None:
    program = lp.Program("endless")
    program.add_node(lp.PyClassNode(nodes.AsyncLoop), label="loop")

    with lp.launch(program, launch_type) as running:
        _wait_for_output(running, "loop", "begun")

    assert [s.state for s in running.status()] == ["stopped"]
    assert running.exit_status() == 0
    assert "cleaned up" in running.logs("loop")


def test_sound_04_a_coroutine_that_raises_fails_the_program(launch_type: str) -> None:
    program = lp.Program("fails")
    program.add_node(lp.PyNode(nodes.fail_later), label="bad")

    with pytest.raises(lp.ProgramFailed, match=r"bad-0 failed in run.*it broke") as caught:
        lp.testing.run(program, DEADLINE_S, launch_type)

    frames = re.findall(r'File "(.*?)"', caught.value.outcome.traceback)
    assert [Path(frame).name for frame in frames] == ["nodes.py"]


# --- threads of the script ----------------------------------------------------------------------


def test_a_thread_of_the_script_is_one_more_worker(launch_type: str) -> None:
    names: list[str] = []
    running = lp.launch(counter_program(), launch_type)

    running.thread_worker("mine", lambda: names.append(lp.current().name) or "returned")
    results = running.results("mine", DEADLINE_S)
    running.wait(DEADLINE_S)

    assert (names, results) == (["mine"], ["returned"])
    assert {s.worker: s.state for s in running.status()} == {
        "counter-0": "stopped",
        "mine": "succeeded",
    }


def test_a_thread_of_the_script_that_raises_fails_the_program(launch_type: str) -> None:
    running = lp.launch(counter_program(), launch_type)

    running.thread_worker("mine", nodes.fail_at_once)

    with pytest.raises(lp.ProgramFailed, match=r"mine failed in run.*it broke"):
        running.wait(DEADLINE_S)


def test_sound_08_a_thread_of_the_script_is_seen_to_run(launch_type: str) -> None:
    may_end = threading.Event()
    with lp.launch(counter_program(), launch_type) as running:
        running.thread_worker("mine", may_end.wait)

        until(lambda: {s.worker: s.state for s in running.status()}.get("mine") == "running")

        may_end.set()
        running.wait(DEADLINE_S)


def test_sound_08_a_thread_of_the_script_that_is_stopped_in_a_call_has_not_failed(
    launch_type: str,
) -> None:
    program = lp.Program("waiting")
    program.add_node(lp.CourierNode(nodes.Waiter), label="waiter")
    running = lp.launch(program, launch_type)
    client = running.client("waiter")
    running.thread_worker("mine", client.wait)
    until(lambda: client.number_of_calls())

    running.stop()

    assert {s.worker: s.state for s in running.status()} == {
        "waiter-0": "stopped",
        "mine": "stopped",
    }
    assert running.exit_status() == 0


def test_sound_08_a_thread_of_the_script_that_never_asks_is_interrupted(launch_type: str) -> None:
    def never_asks() -> None:
        while True:
            has_begun.set()

    has_begun = threading.Event()
    running = lp.launch(counter_program(), launch_type)
    running.thread_worker("mine", never_asks)
    assert has_begun.wait(DEADLINE_S)

    running.stop()

    assert {s.worker: s.state for s in running.status()}["mine"] == "stopped"
    assert running.exit_status() == 0


def test_sound_08_what_a_thread_of_the_script_raises_has_the_exit_code_of_an_exception(
    launch_type: str,
) -> None:
    running = lp.launch(counter_program(), launch_type)

    running.thread_worker("mine", nodes.fail_at_once)

    with pytest.raises(lp.ProgramFailed):
        running.wait(DEADLINE_S)
    assert running.exit_status() == 1


# --- colocation and caching --------------------------------------------------------------------


def test_colocated_threads_call_each_other_and_others_call_them(launch_type: str) -> None:
    counter = lp.CourierNode(nodes.Counter)
    caller = lp.PyClassNode(nodes.Caller, counter.create_handle())
    program = lp.Program("colocated")
    program.add_node(lp.MultiThreadingColocation([counter, caller]), label="both")
    program.add_node(lp.PyNode(nodes.add_once, counter.create_handle()), label="outside")

    running = lp.testing.run(program, DEADLINE_S, launch_type)

    assert "both-0 counted" in running.logs("both")


def test_a_failure_inside_colocated_threads_fails_their_worker(launch_type: str) -> None:
    program = lp.Program("colocated")
    node = lp.MultiThreadingColocation(
        [lp.PyClassNode(nodes.Loop), lp.PyClassNode(nodes.FailsInRun)]
    )
    program.add_node(node, label="both")

    with pytest.raises(lp.ProgramFailed, match=r"both-0 failed in run.*it broke"):
        lp.testing.run(program, DEADLINE_S, launch_type)


def test_colocated_threads_may_end_with_the_first(launch_type: str) -> None:
    members = [lp.PyClassNode(nodes.Loop), lp.PyNode(print, "first")]
    program = lp.Program("colocated")
    program.add_node(
        lp.MultiThreadingColocation(members, return_on_first_completed=True), label="both"
    )

    lp.testing.run(program, DEADLINE_S, launch_type)


def test_colocated_threads_are_interrupted_but_for_those_that_asked_about_stopping(
    launch_type: str,
) -> None:
    members = [lp.PyClassNode(nodes.DeafLoop), lp.PyClassNode(nodes.Loop)]
    program = lp.Program("colocated")
    program.add_node(lp.MultiThreadingColocation(members), label="both")
    running = lp.launch(program, launch_type)
    _wait_for_output(running, "both", "looping")
    _wait_for_output(running, "both", "deaf")

    running.stop()

    assert [s.state for s in running.status()] == ["stopped"]
    assert "unwound" in running.logs("both")
    assert "stopped in good order" in running.logs("both")


def test_colocated_threads_that_never_ask_end_with_the_first_too(launch_type: str) -> None:
    members = [lp.PyClassNode(nodes.DeafLoop), lp.PyNode(print, "first")]
    program = lp.Program("colocated")
    program.add_node(
        lp.MultiThreadingColocation(members, return_on_first_completed=True), label="both"
    )

    running = lp.testing.run(program, DEADLINE_S, launch_type)

    assert [s.state for s in running.status()] == ["succeeded"]


def test_a_server_whose_colocated_sibling_could_not_be_built_is_not_left_behind(
    launch_type: str,
) -> None:
    members = [lp.CourierNode(nodes.BuiltWhenStopped), lp.CourierNode(nodes.FailsInInit)]
    program = lp.Program("colocated")
    program.add_node(lp.MultiThreadingColocation(members), label="both")

    with pytest.raises(lp.ProgramFailed, match="no constructor for you") as caught:
        lp.testing.run(program, DEADLINE_S, launch_type)

    assert caught.value.phase == "init"


def test_a_call_to_a_server_that_has_ended_fails_at_once(launch_type: str) -> None:
    program = lp.Program("ended")
    short = program.add_node(lp.CourierNode(nodes.ServesBriefly), label="short")
    program.add_node(lp.PyClassNode(nodes.CallsTheEnded, short), label="late")

    running = lp.testing.run(program, DEADLINE_S, launch_type)

    assert "short-0 succeeded" in running.logs("late")


def test_colocated_processes_are_workers_of_their_own(launch_type: str) -> None:
    counter = lp.CourierNode(nodes.Counter)
    caller = lp.PyClassNode(nodes.Caller, counter.create_handle())
    program = lp.Program("colocated")
    program.add_node(lp.MultiProcessingColocation([counter, caller]), label="both")

    running = lp.testing.run(program, DEADLINE_S, launch_type)

    assert [s.worker for s in running.status()] == ["both-0.0", "both-0.1"]


def test_a_cacher_answers_from_its_copy_and_refreshes_it(launch_type: str) -> None:
    program = lp.Program("cached")
    counter = program.add_node(lp.CourierNode(nodes.Counter), label="counter")
    program.add_node(
        lp.CacherNode(counter, refresh_interval_ms=20, stale_after_ms=10_000), label="cacher"
    )

    with lp.launch(program, launch_type) as running:
        cached, real = running.client("cacher"), running.client("counter")
        first = cached.add(0)
        real.add(10)
        until(lambda: cached.add(0) != first)
        second = cached.add(0)

    assert (first, second) == (0, 10)


def test_waiting_for_groups_raises_their_failure_and_refuses_unknown_ones(launch_type: str) -> None:
    program = counter_program()
    program.add_node(lp.PyNode(nodes.fail_at_once), label="bad")
    running = lp.launch(program, launch_type)

    with pytest.raises(KeyError, match="'typo'"):
        running.wait(labels=["typo"])
    with pytest.raises(lp.ProgramFailed):
        running.wait(["bad"])


def test_a_handle_of_a_failed_server_says_so_in_the_launching_script(launch_type: str) -> None:
    program = lp.Program("unit test")
    handle = program.add_node(lp.CourierNode(nodes.FailsInInit, after_s=0.5), label="bad")
    running = lp.launch(program, launch_type)

    client = handle.dereference()
    with pytest.raises(lp.courier.WorkerFailed, match="no constructor for you"):
        client.ping()
    with pytest.raises(lp.ProgramFailed):
        running.wait(DEADLINE_S)


# --- logs --------------------------------------------------------------------------------------


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
        assert lines[-1].endswith(
            "no newline at the end"
        ) or "no newline at the end" in running.logs(f"printer-{i}")


def test_logs_of_an_unknown_group_are_refused(launch_type: str) -> None:
    running = lp.testing.run(counting_program(), DEADLINE_S, launch_type)

    with pytest.raises(KeyError, match="has no group 'conuter'"):
        running.logs("conuter")


# --- more than one -----------------------------------------------------------------------------


def test_one_program_can_be_launched_again_and_twice_at_once(launch_type: str) -> None:
    program = counter_program()

    with lp.launch(program, launch_type) as one, lp.launch(program, launch_type) as two:
        assert one.client("counter").add() == 1
        assert two.client("counter").add() == 1
    with lp.launch(program, launch_type) as three:
        assert three.client("counter").add() == 1


def test_f54_two_programs_in_one_process_do_not_touch_each_other(launch_type: str) -> None:
    bad = lp.Program("bad")
    bad.add_node(lp.PyNode(nodes.fail_at_once), label="bad")

    with lp.launch(counter_program(), launch_type) as good:
        with pytest.raises(lp.ProgramFailed):
            lp.testing.run(bad, DEADLINE_S, launch_type)

        assert good.client("counter").add() == 1
        assert not good.is_done


def test_f54_a_program_can_be_launched_from_any_thread(launch_type: str) -> None:
    errors: list[BaseException] = []

    def launch() -> None:
        try:
            lp.testing.run(counting_program(), DEADLINE_S, launch_type)
        except BaseException as error:
            errors.append(error)

    thread = threading.Thread(target=launch)
    thread.start()
    thread.join(DEADLINE_S)

    assert errors == []


def test_stop_handlers_are_called_as_the_worker(launch_type: str) -> None:
    program = lp.Program("handlers")
    program.add_node(lp.CourierNode(nodes.StopHandler), label="handler")
    running = lp.launch(program, launch_type)
    running.client("handler").register()

    running.stop()

    assert "handler-0 handles the stop" in running.logs("handler")


@pytest.mark.parametrize("kind", [nodes.BadHandler, nodes.EndsWithABadHandler])
def test_a_stop_handler_that_raises_is_printed_and_keeps_nothing_from_ending_well(
    launch_type: str, kind: type
) -> None:
    program = lp.Program("handlers")
    program.add_node(lp.CourierNode(kind), label="handler")
    running = lp.launch(program, launch_type)
    if kind is nodes.BadHandler:
        running.client("handler").ping()
    else:
        running.wait(DEADLINE_S)

    running.stop()

    assert [s.state for s in running.status()] in (["stopped"], ["succeeded"])
    assert "ValueError: the first handler" in running.logs("handler")
    assert "the second was called" in running.logs("handler")


def test_disable_run_builds_and_serves_without_running(launch_type: str) -> None:
    program = lp.Program("unit test")
    counter = program.add_node(lp.CourierNode(nodes.Counter), label="counter")
    program.add_node(lp.PyClassNode(nodes.FailsInRun, counter), label="bad")
    program.groups["bad"][0].disable_run()  # type: ignore[attr-defined]

    with lp.launch(program, launch_type) as running:
        assert running.client("counter").add() == 1


def test_an_address_of_the_users_own_is_a_free_port_known_to_others(
    launch_type: str, tmp_path: Path
) -> None:
    address = lp.Address("board")
    owner = lp.PyNode(_listen_once, address)
    owner.allocate_address(address)
    program = lp.Program("address")
    program.add_node(owner, label="owner")
    program.add_node(lp.PyNode(_connect_once, address), label="visitor")

    lp.testing.run(program, DEADLINE_S, launch_type)


def _listen_once(address: lp.Address) -> None:
    import socket

    with socket.create_server(("", lp.get_port_from_address(address.resolve()))) as server:
        connection, _ = server.accept()
        connection.close()


def _connect_once(address: lp.Address) -> None:
    import socket

    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        host, _, port = address.resolve().rpartition(":")
        try:
            socket.create_connection((host, int(port))).close()
            return
        except OSError:  # nobody listens yet, or nobody has that name
            time.sleep(0.01)
    raise TimeoutError("nobody listens")


# --- after run() -------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["thread", "executor", "atexit"])
def test_sound_03_what_python_waits_for_after_run_is_waited_for(
    process_launch_type: str, kind: str
) -> None:
    program = lp.Program("saving")
    program.add_node(lp.PyNode(nodes.leave_work, kind, 6), label="saver")

    running = lp.testing.run(program, DEADLINE_S, process_launch_type)

    assert [s.state for s in running.status()] == ["succeeded"]
    assert "saved" in running.logs("saver")


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["thread", "atexit"])
def test_sound_03_what_is_cut_off_after_run_is_named_and_no_success(
    process_launch_type: str, kind: str
) -> None:
    program = lp.Program("saving")
    program.add_node(lp.PyNode(nodes.leave_work, kind, 1000), label="saver")
    policy = lp.RestartPolicy(mode="never", stop_grace_s=0.1)

    running = lp.launch(program, process_launch_type, restart=policy)
    with pytest.raises(lp.ProgramFailed) as caught:
        running.wait(DEADLINE_S)

    awaited = {"thread": "its thread 'saver'", "atexit": "registered with atexit"}[kind]
    ended = caught.value.outcome
    assert (ended.kind, ended.phase, ended.hung) == ("failed", "stop", True)
    assert "cut off" in ended.cause
    assert awaited in ended.cause
    assert "nodes.py" in running.logs("saver")  # its stacks
    assert running.exit_status() == 5


def _wait_for_output(running: lp.Running, label: str, text: str, count: int = 1) -> None:
    """Until the workers of a group have printed it."""
    deadline = time.monotonic() + DEADLINE_S
    while running.logs(label).count(text) < count:
        assert time.monotonic() < deadline, running.logs(label)
        time.sleep(0.005)
