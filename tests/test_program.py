"""Describing a program: mistakes are found at the line that makes them."""

from __future__ import annotations

import copy
import dataclasses
import functools
import inspect
import pickle
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any
from unittest import mock

import pytest

import launchpad as lp


class Server:
    def ping(self) -> str:
        return "pong"


class Client:
    def __init__(self, *servers: Any) -> None:
        self.servers = servers

    def run(self) -> None: ...


@dataclasses.dataclass
class Config:
    server: Any


@pytest.fixture
def program() -> lp.Program:
    """A server and its two clients."""
    program = lp.Program("p")
    server = program.add_node(lp.CourierNode(Server), label="server")
    with program.group("client"):
        for _ in range(2):
            program.add_node(lp.PyClassNode(Client, {"of": [server]}))
    return program


@pytest.mark.parametrize("copied", [copy.copy, copy.deepcopy])
def test_add_node_returns_the_handle_of_the_node_and_its_copy_is_itself(copied: Any) -> None:
    node = lp.CourierNode(Server)

    handle = lp.Program("p").add_node(node, label="server")

    assert isinstance(handle, lp.CourierHandle)
    assert handle.node is node
    assert copied(handle) is handle
    assert copied([handle])[0] is handle
    assert dataclasses.asdict(Config(handle)) == {"server": handle}


def test_nodes_added_in_a_group_are_its_replicas_in_order_also_when_it_is_opened_again() -> None:
    program = lp.Program("p")
    nodes = [lp.CourierNode(Server) for _ in range(3)]
    program.add_node(nodes[0], label="server")

    with program.group("server"):
        assert program.current_group == "server"
        for node in nodes[1:]:
            program.add_node(node)

    assert program.groups == {"server": nodes}
    assert program.get_all_nodes() == nodes
    assert program.current_group is None


def open_with_other_options(program: lp.Program) -> None:
    for value in "12":
        with program.group("learner", resources=lp.Resources(env={"A": value})):
            pass


def add_with_another_label(program: lp.Program) -> None:
    with program.group("a"):
        program.add_node(lp.CourierNode(Server), label="b")


def open_a_group_in_a_group(program: lp.Program) -> None:
    with program.group("outer"), program.group("inner"):
        pass


def allocate_two_addresses_of_one_role(program: lp.Program) -> None:
    node, address = lp.PyNode(print), lp.Address("board")
    node.allocate_address(address)
    assert node.allocate_address(address) is address
    node.allocate_address(lp.Address("board"))


@pytest.mark.parametrize(
    ("mistake", "error", "text"),
    [
        (lambda p: p.add_node(lp.CourierNode(Server)), ValueError, "needs a label"),
        (add_with_another_label, ValueError, "another label, 'b'"),
        (open_a_group_in_a_group, ValueError, "do not nest"),
        (open_with_other_options, ValueError, "other options"),
        (allocate_two_addresses_of_one_role, lp.DefinitionError, "'board' already"),
        (lambda p: p.add_node(Server, label="a"), TypeError, "takes a node"),
        (lambda p: lp.CourierNode(Server()), TypeError, "needs a class or a function"),
        (
            lambda p: lp.CourierNode(Server, courier_kwargs={"thraed_pool_size": 3}),
            TypeError,
            "thread_pool_size",
        ),
        (
            lambda p: p.add_node(lp.CourierNode(Server), label="a").ping(),
            AttributeError,
            r"it is a handle.*dereference\(\)",
        ),
    ],
)
def test_a_mistake_is_refused_at_its_line(
    mistake: Callable[[lp.Program], object], error: type[Exception], text: str
) -> None:
    with pytest.raises(error, match=text):
        mistake(lp.Program("p"))


@pytest.mark.parametrize(
    "label", ["", "a b", "a/b", "-a", "a-", "ä", "x" * 64, None, 3, "a\n", "../a"]
)
def test_f04_a_label_that_a_backend_cannot_carry_is_refused_at_its_line(label: Any) -> None:
    program = lp.Program("p")

    with pytest.raises(ValueError, match="label"):
        program.add_node(lp.CourierNode(Server), label=label)

    assert program.get_all_nodes() == []


def test_f05_a_node_added_twice_is_refused_with_both_places() -> None:
    program = lp.Program("p")
    node = lp.CourierNode(Server)
    program.add_node(lp.MultiThreadingColocation([node]), label="one")

    with pytest.raises(ValueError, match="added twice") as caught:
        program.add_node(node, label="two")

    assert str(caught.value).count("test_program.py:") == 2
    assert "group 'one'" in str(caught.value)
    assert "group 'two'" in str(caught.value)
    assert list(program.groups) == ["one"]


@pytest.mark.parametrize("colocation", [lp.MultiThreadingColocation, lp.MultiProcessingColocation])
def test_f05_a_node_that_is_twice_in_a_colocation_is_refused(colocation: Any) -> None:
    node = lp.CourierNode(Server)

    with pytest.raises(lp.DefinitionError, match=r"nodes\[1\] .* is in it already"):
        colocation([node, node])


def test_a_program_shows_who_holds_whose_handle_also_when_pickled(program: lp.Program) -> None:
    copied = pickle.loads(pickle.dumps(program))

    assert copied.edges() == program.edges()
    assert str(copied) == str(program)
    assert program.edges()[1] == lp.Edge("client-1", "server-0", "client-1.args[0]['of'][0]")
    assert "program 'p': 3 nodes, 2 edges" in str(program)
    assert "client ×2: PyClassNode(Client) → server" in str(program)


def test_make_program_groups_nodes_by_what_they_are_made_of() -> None:
    nodes = lp.CourierNode(Server), lp.CourierNode(Server), lp.PyClassNode(Client)

    program = lp.make_program(*nodes, name="made")

    assert {label: len(of) for label, of in program.groups.items()} == {"server": 2, "client": 1}
    assert program.name == "made"


def test_sound_33_a_deep_copy_of_a_program_is_a_program_of_its_own(program: lp.Program) -> None:
    server = program.add_node(lp.CourierNode(Server), label="other")
    program.add_node(lp.PyNode(lambda: server), label="closure")

    copied = copy.deepcopy(program)
    program.add_node(lp.PyClassNode(Client, server), label="later")

    assert [edge for edge in program.edges() if edge not in copied.edges()] != []
    assert list(copied.groups) == ["server", "client", "other", "closure"]
    assert len(copied.edges()) == 3
    assert len(lp.plan(copied).workers) == 5


# --- what cannot run -----------------------------------------------------------------------------


def generate(count: int) -> Iterator[int]:
    yield from range(count)


async def generate_later() -> AsyncIterator[int]:
    yield 1


async def build_later() -> Server:
    return Server()


class Mistyped:
    def rum(self) -> None: ...


class Generates:
    def run(self) -> Iterator[int]:
        yield 1


class CalledLater:
    def __call__(self) -> Iterator[int]:
        yield 1


class MadeByAFactory:
    def __new__(cls) -> Any:
        return Client(None)


class TakesItsRun:
    def __init__(self) -> None:
        self.run = print


class Forwards:
    def __getattr__(self, name: str) -> Any:
        return getattr(self.__dict__["of"], name)


def injects(function: Any) -> Any:
    """A decorator that adds arguments, as configuration libraries have them."""

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        return function(1, *args, **kwargs)

    return call


def takes_three(first: int, second: int, third: int = 3) -> None: ...


@injects
def needs_two(first: int, second: int) -> None: ...


class TakesItsRunLater:
    def __init__(self) -> None:
        self.set()

    def set(self) -> None:
        vars(self)["run"] = print


class SaysWhatItTakes:
    __signature__ = inspect.Signature()

    def __init__(self, **anything: Any) -> None: ...

    def run(self) -> None: ...


def with_its_run_disabled() -> lp.Node[Any]:
    node = lp.PyClassNode(Server)
    node.disable_run()
    return node


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (lambda: lp.PyNode(generate, 3), r"PyNode\(generate\): generate is a generator"),
        (lambda: lp.PyNode(functools.partial(generate, 3)), "a generator"),
        (lambda: lp.PyNode(CalledLater()), "a generator"),
        (lambda: lp.PyNode(generate_later), "an async generator"),
        (lambda: lp.PyClassNode(Generates), r"Generates\.run is a generator"),
        (lambda: lp.CourierNode(Generates), r"Generates\.run is a generator"),
        (lambda: lp.CourierNode(build_later), "build_later is an async function"),
        (lambda: lp.CourierNode(generate, 3), "generate is a generator"),
        (lambda: lp.PyClassNode(Mistyped), r"Mistyped has no run\(\).*Did you mean rum\?"),
        (lambda: lp.PyClassNode(Server), r"has no run\(\).*lp.CourierNode.*disable_run\(\)"),
        (lambda: lp.MultiThreadingColocation([lp.PyClassNode(Mistyped)]), r"has no run\(\)"),
        (
            lambda: lp.PyNode(takes_three, 1),
            r"missing a required argument: 'second'.*takes_three\(first, second, third=3\)",
        ),
        (lambda: lp.CourierNode(Server, 1), r"CourierNode\(Server\) .*too many positional"),
        (lambda: lp.PyNode(takes_three, 1, 2, thrid=3), r"'thrid'\. Did you mean third\?"),
        (lambda: lp.PyNode(len, 1, 2), "too many positional"),
        (lambda: lp.Deferred(takes_three), r"Deferred\(takes_three\) .*missing"),
        (lambda: lp.Deferred(build_later), "is an async function"),
    ],
)
def test_sound_04_a_node_that_cannot_run_is_refused(
    make: Callable[[], lp.Node[Any]], text: str
) -> None:
    program = lp.Program("p")

    with pytest.raises(lp.DefinitionError, match=text):
        program.add_node(make(), label="a")

    assert program.groups == {}


@pytest.mark.parametrize(
    "make",
    [
        lambda: lp.PyClassNode(MadeByAFactory),
        lambda: lp.PyClassNode(TakesItsRun),
        lambda: lp.PyClassNode(TakesItsRunLater),
        lambda: lp.PyClassNode(Forwards),
        lambda: lp.PyClassNode(lambda: Server()),
        lambda: lp.PyClassNode(Client(None).run),
        lambda: lp.PyClassNode(mock.Mock()),
        lambda: lp.PyClassNode(SaysWhatItTakes, alias=1),
        with_its_run_disabled,
        lambda: lp.PyNode(needs_two, 1),
        lambda: lp.PyNode(int, 1),
        lambda: lp.PyNode(print, 1),
        lambda: lp.PyNode(functools.partial(takes_three, 1), 1),
    ],
)
def test_sound_30_a_node_that_may_well_run_is_taken(make: Callable[[], lp.Node[Any]]) -> None:
    lp.Program("p").add_node(make(), label="a")


def test_sound_30_a_node_that_was_never_configured_is_refused_when_planned() -> None:
    program = lp.Program("p")
    node = lp.CourierNode(takes_three, 1)
    program.add_node(node, label="a")

    with pytest.raises(
        lp.DefinitionError, match=r"'second'.*It was added at .*test_program\.py:\d+"
    ):
        lp.plan(program)
    node.configure(1, 2)
    lp.plan(program)


def test_add_node_with_replicas_adds_as_many_nodes_with_addresses_of_their_own() -> None:
    program = lp.Program("p")
    handles = program.add_node(lp.CourierNode(Server), label="server", replicas=3)
    waiting = program.add_node(lp.PyNode(lp.wait_for_stop), label="waiting", replicas=2)

    with lp.launch(program, "test_mt") as running:
        answers = [running.client(handle).ping() for handle in handles]
        names = [status.worker for status in running.status()]

    assert answers == ["pong"] * 3
    assert names == ["server-0", "server-1", "server-2", "waiting-0", "waiting-1"]
    assert len(waiting) == 2
    assert program.add_node(lp.PyNode(print), label="waiting", replicas=0) == []
    assert len({handle.client_options[0] for handle in handles}) == 3


def with_an_address_among_its_arguments() -> lp.Node[Any]:
    address = lp.Address("board")
    node = lp.PyClassNode(Client, [address])
    node.allocate_address(address)
    return node


@pytest.mark.parametrize(
    ("make_node", "replicas", "text"),
    [
        (lambda: lp.PyNode(print), -1, "replicas=-1: expected a whole number, 0 or more"),
        (lambda: lp.PyNode(print), 2.0, "replicas=2.0: expected a whole number"),
        (
            lambda: lp.MultiThreadingColocation([lp.PyNode(print)]),
            2,
            "a colocation has no replicas",
        ),
        (with_an_address_among_its_arguments, 2, "has an address that was given to it"),
    ],
)
def test_what_cannot_have_replicas_is_refused_and_nothing_is_added(
    make_node: Callable[[], lp.Node[Any]], replicas: Any, text: str
) -> None:
    program = lp.Program("p")

    with pytest.raises(lp.DefinitionError, match=text):
        program.add_node(make_node(), label="a", replicas=replicas)

    assert program.groups == {}


def test_a_handle_of_another_program_gives_no_client_of_this_one() -> None:
    program = lp.Program("p")
    program.add_node(lp.CourierNode(Server), label="server")
    stranger = lp.Program("q").add_node(lp.CourierNode(Server), label="server")

    with lp.launch(program, "test_mt") as running:
        with pytest.raises(KeyError, match="is of no node of program 'p'"):
            running.client(stranger)
        with pytest.raises(TypeError, match="takes a handle, or the label of a group"):
            running.client(0)  # type: ignore[call-overload]
