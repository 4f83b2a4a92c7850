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


def test_add_node_returns_the_handle_of_the_node() -> None:
    program = lp.Program("p")
    node = lp.CourierNode(Server)

    handle = program.add_node(node, label="server")

    assert isinstance(handle, lp.CourierHandle)
    assert handle.node is node


@dataclasses.dataclass
class Config:
    server: Any


@pytest.mark.parametrize("copied", [copy.copy, copy.deepcopy])
def test_a_copy_of_a_handle_is_the_handle(copied: Any) -> None:
    handle = lp.CourierNode(Server).create_handle()

    assert copied(handle) is handle
    assert copied([handle])[0] is handle
    assert dataclasses.asdict(Config(handle)) == {"server": handle}


def test_nodes_added_in_a_group_are_its_replicas_in_order() -> None:
    program = lp.Program("p")
    nodes = [lp.CourierNode(Server) for _ in range(3)]

    with program.group("server"):
        for node in nodes:
            program.add_node(node)

    assert program.groups == {"server": nodes}
    assert program.get_all_nodes() == nodes
    assert program.current_group is None


def test_opening_a_group_again_appends_to_it() -> None:
    program = lp.Program("p")
    program.add_node(lp.CourierNode(Server), label="server")

    with program.group("server"):
        assert program.current_group == "server"
        program.add_node(lp.CourierNode(Server), label="server")

    assert len(program.groups["server"]) == 2


@pytest.mark.parametrize("colocation", [lp.MultiThreadingColocation, lp.MultiProcessingColocation])
def test_a_node_that_is_twice_in_a_colocation_is_refused(colocation: Any) -> None:
    node = lp.CourierNode(Server)

    with pytest.raises(lp.DefinitionError, match=r"nodes\[1\] .* is in it already"):
        colocation([node, node])


def test_two_addresses_of_one_role_in_a_node_are_refused_and_one_may_be_given_twice() -> None:
    node = lp.PyNode(print)
    address = lp.Address("board")
    node.allocate_address(address)

    assert node.allocate_address(address) is address
    with pytest.raises(lp.DefinitionError, match="'board' already"):
        node.allocate_address(lp.Address("board"))


def test_a_node_without_a_label_outside_a_group_is_refused() -> None:
    with pytest.raises(ValueError, match="needs a label"):
        lp.Program("p").add_node(lp.CourierNode(Server))


def test_another_label_inside_a_group_is_refused() -> None:
    program = lp.Program("p")

    with program.group("server"), pytest.raises(ValueError, match="another label, 'client'"):
        program.add_node(lp.CourierNode(Server), label="client")


def test_groups_do_not_nest() -> None:
    program = lp.Program("p")

    with (
        program.group("outer"),
        pytest.raises(ValueError, match="do not nest"),
        program.group("inner"),
    ):
        pass


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
    program.add_node(node, label="one")

    with pytest.raises(ValueError, match="added twice") as caught:
        program.add_node(node, label="two")

    assert str(caught.value).count("test_program.py:") == 2
    assert "group 'one'" in str(caught.value)
    assert "group 'two'" in str(caught.value)
    assert list(program.groups) == ["one"]


def test_f05_a_node_in_a_colocation_and_by_itself_is_refused() -> None:
    program = lp.Program("p")
    node = lp.CourierNode(Server)
    program.add_node(lp.MultiThreadingColocation([node]), label="colocated")

    with pytest.raises(ValueError, match="added twice"):
        program.add_node(node, label="alone")


def test_something_that_is_no_node_is_refused() -> None:
    with pytest.raises(TypeError, match="takes a node"):
        lp.Program("p").add_node(Server, label="server")  # type: ignore[type-var]


def test_a_constructor_that_cannot_be_called_is_refused_at_its_line() -> None:
    with pytest.raises(TypeError, match="needs a class or a function"):
        lp.CourierNode(Server())  # type: ignore[arg-type]


def test_calling_a_method_on_a_handle_says_to_dereference_it() -> None:
    handle = lp.Program("p").add_node(lp.CourierNode(Server), label="server")

    with pytest.raises(AttributeError, match=r"it is a handle.*dereference\(\)"):
        handle.ping()


def test_unknown_courier_options_are_refused_at_their_line() -> None:
    with pytest.raises(TypeError, match="thread_pool_size"):
        lp.CourierNode(Server, courier_kwargs={"thraed_pool_size": 3})


def test_edges_say_who_holds_whose_handle_and_where() -> None:
    program = lp.Program("p")
    server = program.add_node(lp.CourierNode(Server), label="server")
    program.add_node(lp.PyClassNode(Client, {"of": [server]}), label="client")

    assert program.edges() == [lp.Edge("client-0", "server-0", "client-0.args[0]['of'][0]")]


def test_cycles_of_handles_are_legal() -> None:
    a, b = lp.CourierNode(Client), lp.CourierNode(Client)
    a.configure(b.create_handle())
    b.configure(a.create_handle())

    program = lp.make_program(a, b)

    assert {(e.source, e.target) for e in program.edges()} == {
        ("client-0", "client-1"),
        ("client-1", "client-0"),
    }


def test_make_program_groups_nodes_by_what_they_are_made_of() -> None:
    program = lp.make_program(
        lp.CourierNode(Server), lp.CourierNode(Server), lp.PyClassNode(Client), name="made"
    )

    assert {label: len(nodes) for label, nodes in program.groups.items()} == {
        "server": 2,
        "client": 1,
    }
    assert program.name == "made"


def test_printing_a_program_shows_the_graph() -> None:
    program = lp.Program("p")
    server = program.add_node(lp.CourierNode(Server), label="server")
    with program.group("client"):
        for _ in range(2):
            program.add_node(lp.PyClassNode(Client, server))

    text = str(program)

    assert "program 'p': 3 nodes, 2 edges" in text
    assert "client ×2: PyClassNode(Client) → server" in text


def test_a_program_can_be_pickled_with_its_edges() -> None:
    program = lp.Program("p")
    server = program.add_node(lp.CourierNode(Server), label="server")
    program.add_node(lp.PyClassNode(Client, server), label="client")

    copied = pickle.loads(pickle.dumps(program))

    assert copied.edges() == program.edges()
    assert str(copied) == str(program)


def test_sound_33_a_deep_copy_of_a_program_is_a_program_of_its_own() -> None:
    program = lp.Program("p")
    server = program.add_node(lp.CourierNode(Server), label="server")
    program.add_node(lp.PyClassNode(Client, server), label="client")
    program.add_node(lp.PyNode(lambda: server), label="closure")

    copied = copy.deepcopy(program)
    program.add_node(lp.PyClassNode(Client, server), label="later")

    assert [edge for edge in program.edges() if edge not in copied.edges()] != []
    assert list(copied.groups) == ["server", "client", "closure"]
    assert len(copied.edges()) == 2
    assert len(lp.plan(copied).workers) == 3


def test_group_options_may_be_given_only_once() -> None:
    program = lp.Program("p")
    with program.group("learner", resources=lp.Resources(env={"A": "1"})):
        pass

    with (
        pytest.raises(ValueError, match="other options"),
        program.group("learner", resources=lp.Resources(env={"A": "2"})),
    ):
        pass


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
    ],
)
def test_sound_04_a_node_of_which_nothing_would_run_is_refused_where_it_is_added(
    make: Callable[[], lp.Node[Any]], text: str
) -> None:
    program = lp.Program("p")

    with pytest.raises(lp.DefinitionError, match=text):
        program.add_node(make(), label="a")

    assert program.groups == {}


class TakesItsRunLater:
    def __init__(self) -> None:
        self.set()

    def set(self) -> None:
        vars(self)["run"] = print


class SaysWhatItTakes:
    __signature__ = inspect.Signature()

    def __init__(self, **anything: Any) -> None: ...

    def run(self) -> None: ...


@pytest.mark.parametrize(
    "constructor",
    [
        MadeByAFactory,
        TakesItsRun,
        TakesItsRunLater,
        Forwards,
        lambda: Server(),
        Client(None).run,
        mock.Mock(),
    ],
)
def test_sound_04_a_class_whose_objects_may_have_a_run_is_taken(constructor: Any) -> None:
    lp.Program("p").add_node(lp.PyClassNode(constructor), label="a")


def test_sound_04_a_class_without_a_run_is_taken_when_its_run_is_disabled() -> None:
    node = lp.PyClassNode(Server)
    node.disable_run()

    lp.Program("p").add_node(node, label="a")


@pytest.mark.parametrize(
    ("make", "text"),
    [
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
def test_sound_30_arguments_that_a_constructor_does_not_take_are_refused_where_it_is_added(
    make: Callable[[], lp.Node[Any]], text: str
) -> None:
    with pytest.raises(lp.DefinitionError, match=text):
        lp.Program("p").add_node(make(), label="a")


@pytest.mark.parametrize("function", [needs_two, int, print, functools.partial(takes_three, 1)])
def test_sound_30_where_the_arguments_are_not_known_any_are_taken(function: Any) -> None:
    lp.Program("p").add_node(lp.PyNode(function, 1), label="a")


def test_sound_30_what_says_itself_what_it_takes_is_believed_to_take_more() -> None:
    lp.Program("p").add_node(lp.PyClassNode(SaysWhatItTakes, alias=1), label="a")


def test_sound_30_a_node_that_was_to_be_configured_later_and_was_not_is_refused_when_planned() -> (
    None
):
    program = lp.Program("p")
    node = lp.CourierNode(takes_three, 1)
    program.add_node(node, label="a")

    with pytest.raises(
        lp.DefinitionError, match=r"'second'.*It was added at .*test_program\.py:\d+"
    ):
        lp.plan(program)
    node.configure(1, 2)
    lp.plan(program)
