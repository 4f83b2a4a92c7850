"""Describing a program: mistakes are found at the line that makes them."""

from __future__ import annotations

import copy
import dataclasses
import pickle
from typing import Any

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


def test_the_picture_has_a_box_per_group_and_an_arrow_per_pair_of_groups() -> None:
    program = lp.Program("p")
    server = program.add_node(lp.CourierNode(Server), label="the.server")
    with program.group("client"):
        for _ in range(2):
            program.add_node(lp.PyClassNode(Client, server))

    lines = program.to_mermaid().splitlines()

    assert lines[0] == "flowchart LR"
    assert len([line for line in lines if "-->" in line]) == 1
    assert any('["the.server ×1: CourierNode(Server)"]' in line for line in lines)
    assert program.graph().to_mermaid() == program.to_mermaid()


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
