"""What programs written for dm-launchpad use, by the rows of the list of what was in their way."""

from __future__ import annotations

import contextlib
import datetime
import functools
import importlib
import re
import unittest
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import launchpad as lp
from launchpad import courier
from tests.helpers import scripts
from tests.helpers.programs import DEADLINE_S, single
from tests.helpers.scripts import run
from tests.waiting import until


@contextlib.contextmanager
def client_of(node: lp.CourierNode[Any], launch_type: str = "test_mt") -> Iterator[Any]:
    """A client of the one worker of a program."""
    with lp.launch(single(node), launch_type) as running:
        yield running.client("worker")


# --- imports -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("module", "here"),
    [
        ("launchpad.nodes.python.local_multi_processing", [lp.PythonProcess]),
        ("courier", [courier.Server, courier.Client]),
    ],
)
def test_rows_01_06_a_module_that_has_a_class_there_has_it_here_too(
    module: str, here: list[type]
) -> None:
    assert [getattr(importlib.import_module(module), each.__name__) for each in here] == here


# --- what is served ------------------------------------------------------------------------------


class Counter:
    def __init__(self) -> None:
        self.count = 0

    def increment(self, by: int = 1) -> int:
        self.count += by
        return self.count


class Wrapper:
    """As Acme's CheckpointingRunner: what it wraps is seen through it."""

    limit = property(lambda self: 1 / 0)

    def __init__(self) -> None:
        self._wrapped = Counter()

    def save(self) -> str:
        return "saved"

    def __dir__(self) -> list[str]:
        return [*dir(self._wrapped), "save", "limit", "run"]

    def __getattr__(self, name: str) -> Any:
        return getattr(self._wrapped, name)


class Batches:
    """As Acme's InferenceServer: handlers are made for each object."""

    def __init__(self) -> None:
        self._handler = lp.batched_handler(batch_size=2, timeout=0.01)(self._double)
        self.act = lp.batched_handler(batch_size=2, timeout=0.01)(self._double)

    def _double(self, x: Any) -> Any:
        return [2 * each for each in x]

    @property
    def handler(self) -> Callable[..., Any]:
        return self._handler


def test_row_04_a_class_that_defines_dir_says_itself_what_is_served() -> None:
    with client_of(lp.CourierNode(Wrapper), "test_mp") as counter:
        assert courier.list_methods(counter) == ["increment", "save"]
        assert counter.increment(by=3) == 3


def test_row_08_batched_handlers_of_an_object_and_properties_that_return_one_are_served() -> None:
    server = courier.Server(address=None)
    server.bind_object(Batches())
    server.start()
    with courier.Client(server.address) as client:
        assert courier.list_methods(client) == ["act", "handler"]
        assert client.handler(3) == 6
        assert client.act(4) == 8
    server.stop()


class Arena:
    def run(self, rounds: int = 1) -> int:
        return rounds


def test_row_14_run_can_be_called_where_it_has_been_disabled() -> None:
    node = lp.CourierNode(Arena)
    node.disable_run()

    with client_of(node) as arena:
        assert arena.run(3) == 3


# --- courier -------------------------------------------------------------------------------------


def test_row_07_a_server_at_a_port_a_client_with_options_by_position_and_a_method_with_priority() -> (
    None
):
    server = courier.Server("texts", 0)
    server.Bind("echo", lambda text: text, is_priority=True)
    server.Start()

    with courier.Client(f"localhost:{server.port}", True, 30.0) as client:
        assert client.echo("text " * 100_000) == "text " * 100_000
        counted = courier.stats(client).methods["echo"]
    urgent = server._methods.urgent
    server.Stop()

    assert counted.bytes_out < 10_000
    assert counted.bytes_in < 10_000
    assert urgent == {b"echo"}


class StartsItself:
    def set_courier_server(self, server: courier.Server) -> None:
        server.Start()

    def ping(self) -> str:
        return "pong"


def test_row_21_an_object_may_start_its_server_itself() -> None:
    with client_of(lp.CourierNode(StartsItself)) as client:
        assert client.ping() == "pong"


def test_row_20_a_timeout_may_be_a_timedelta() -> None:
    options = {"call_timeout": datetime.timedelta(seconds=0.05)}
    node = lp.CourierNode(Waits, courier_client_kwargs=options)

    with client_of(node) as client, pytest.raises(courier.DeadlineExceeded):
        client.wait()


class Waits:
    def wait(self) -> None:
        lp.wait_for_stop()


@pytest.mark.parametrize(("given", "error"), [(0, ValueError), (-1, ValueError), ("1", TypeError)])
def test_row_20_a_timeout_that_is_none_is_refused_where_it_is_given(
    given: Any, error: type[Exception]
) -> None:
    with pytest.raises(error, match="a timeout is in seconds"):
        lp.CourierNode(Waits, courier_client_kwargs={"call_timeout": given})


# --- launching -----------------------------------------------------------------------------------


COUNTING = single(lp.CourierNode(Counter), "counter")


@pytest.mark.parametrize("nothing", [[], None, {}])
def test_row_09_local_resources_that_are_false_are_none(nothing: Any) -> None:
    plan = lp.plan(COUNTING, "local_mp", {"counter": nothing})

    assert dict(plan.workers[0].process.env) == {}


def test_row_11_several_programs_are_refused_with_what_to_do() -> None:
    with pytest.raises(lp.DefinitionError, match="got 2; launch each of them"):
        lp.launch([COUNTING, COUNTING], "test_mt")


def test_row_15_nodes_that_are_to_share_objects_are_refused() -> None:
    with pytest.raises(lp.DefinitionError, match="let a CourierNode serve what they share"):
        lp.launch(COUNTING, "test_mt", serialize_py_nodes=False)


class Builder:
    """As Mava's: it holds the program, and nodes are made of its methods."""

    def __init__(self) -> None:
        self.program = lp.Program("built")
        self.handle = self.program.add_node(lp.CourierNode(Counter), label="counter")
        self.program.add_node(lp.PyNode(print), label="other")

    def train(self) -> None:
        assert self.program.name == "built"
        assert self.program.groups == {}
        lp.stop()


def test_row_12_a_program_that_a_node_holds_travels_without_its_nodes(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("LP_FAKE_GPUS", "2")
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    builder = Builder()
    builder.program.add_node(lp.PyNode(builder.train), label="trainer")

    lp.testing.run(builder.program, DEADLINE_S, "local_mp")

    assert "no worker is given a GPU, and this host has GPUs" in capsys.readouterr().out


def test_row_13_the_launch_type_has_a_value_and_the_environment_variable_counts_under_absl(
    tmp_path: Path,
) -> None:
    body = """
from absl import app, flags
import launchpad as lp
program = lp.Program("p")
program.add_node(lp.PyNode(print), label="a")
app.run(lambda _: print(flags.FLAGS.lp_launch_type, lp.LAUNCH_TYPE.value, lp.plan(program).launch_type))
"""
    command = scripts.write(tmp_path, body)
    variable = {"LP_LAUNCH_TYPE": "local_mp"}

    assert run(command).stdout == "local_mt local_mt local_mt\n"
    assert run(command, env=variable).stdout.split()[-1] == "local_mp"
    given = run(command, "--lp_launch_type=local_mt", env=variable)
    assert given.stdout.split()[-1] == "local_mt"


def test_a_script_may_wait_for_the_first_of_a_group_and_then_for_all_of_it() -> None:
    program = lp.Program("waited")
    server = program.add_node(lp.CourierNode(Counter), label="_counter")
    with program.group("work"):
        program.add_node(lp.PyNode(print))
        program.add_node(lp.PyNode(wait_for_one, server))
    running = lp.launch(program, "test_mt")

    running.wait(["work"], return_on_first_completed=True)
    assert succeeded(running) == ["work-0"]
    counter: Any = running.client("_counter")
    counter.increment()
    running.wait(["work"])
    assert succeeded(running) == ["work-0", "work-1"]
    running.stop_and_wait()


def succeeded(running: lp.Running) -> list[str]:
    return [worker.worker for worker in running.status() if worker.state == "succeeded"]


def wait_for_one(counter: Any) -> None:
    until(lambda: counter.increment(0))


# --- failures ------------------------------------------------------------------------------------


def fail() -> None:
    raise ValueError("it broke")


FAILING = single(lp.PyNode(fail))


class Adder:
    def __init__(self, counters: Any, start: Any, more: dict[str, Any]) -> None:
        self._counters, self._start, self._more = counters, start, more

    def step(self) -> int:
        assert self._start is self._more["start"]  # a Deferred is built once
        others = sum(counter.increment() for counter in self._counters)
        return int(others + self._start[0] + self._more["one"].increment())

    def run(self) -> None:
        raise AssertionError("it is switched off")


def test_row_16_a_test_can_have_the_object_of_a_node_with_clients_for_handles() -> None:
    program = lp.Program("adder")
    with program.group("counter"):
        counters = [program.add_node(lp.CourierNode(Counter)) for _ in range(2)]
    start = lp.Deferred(lambda counter: [100 + counter.increment(0)], counters[0])
    adder_of = functools.partial(Adder, counters, start)  # here too handles are found
    node = lp.PyClassNode(adder_of, more={"one": counters[1], "start": start})
    node.disable_run()
    program.add_node(node, label="adder")
    with pytest.raises(lp.NotRunningError):
        node.construct()

    with lp.launch(program, "test_mp"):
        adder = node._construct_instance()

        assert type(adder) is Adder
        assert adder.step() == 1 + 1 + 100 + 2


def test_row_18_the_cleanup_of_a_test_raises_only_what_was_not_raised() -> None:
    class Tests(unittest.TestCase):
        def expected(self) -> None:
            with self.assertRaises(lp.ProgramFailed):  # noqa: PT027  as dm-launchpad's own tests have it
                lp.launch(FAILING, "test_mt", test_case=self).wait()

        def unseen(self) -> None:
            lp.launch(FAILING, "test_mt", test_case=self).wait(raise_error=False)

    result = unittest.TestResult()
    Tests("expected").run(result)
    assert (result.errors, result.failures) == ([], [])
    Tests("unseen").run(result)
    assert "it broke" in result.errors[0][1]


def test_row_19_the_failure_that_wait_raises_is_a_runtime_error() -> None:
    with pytest.raises(RuntimeError, match="it broke"):
        lp.launch(FAILING, "test_mt").wait(DEADLINE_S)


# --- payloads ------------------------------------------------------------------------------------


def test_row_22_functions_with_a_cache_travel() -> None:
    @functools.lru_cache(maxsize=3)
    def square(x: int) -> int:
        return x * x

    def use(function: Any) -> None:
        assert function(3) == 9
        assert function.cache_parameters() == {"maxsize": 3, "typed": False}

    lp.testing.run(single(lp.PyNode(use, square)), DEADLINE_S, "test_mp")


def test_row_24_a_node_class_with_a_run_of_its_own_is_refused() -> None:
    class Mine(lp.PyNode):
        def run(self) -> None: ...

    with pytest.raises(lp.DefinitionError, match=r"run.*nothing would call.*to_executable"):
        lp.Program("p").add_node(Mine(print), label="a")


LOGS = """
import logging
import launchpad as lp
{imports}

def work():
    logging.info("this is at level INFO")

def main(_):
    program = lp.Program("p")
    program.add_node(lp.PyNode(work), label="worker")
    lp.launch(program, "local_mp")

{begin}(main)
"""


@pytest.mark.parametrize(
    ("imports", "begin", "line"),
    [
        ("from absl import app", "app.run", r"I\d{4} .* script.py:7\]"),
        ("", "(lambda main: main([]))", "INFO:root:"),
    ],
)
def test_row_05_logging_of_the_standard_library_is_at_level_info_and_in_absls_format_where_it_is_used(
    imports: str, begin: str, line: str, tmp_path: Path
) -> None:
    body = LOGS.format(imports=imports, begin=begin)

    output = run(scripts.write(tmp_path, body)).stdout

    assert re.search(rf"worker-0 +\| {line} ?this is at level INFO", output), output
