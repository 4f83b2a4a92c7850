"""The plan: all that can be known before anything starts, mistakes included."""

from __future__ import annotations

import functools
import json
import multiprocessing
import re
import socket
import threading
import types
from typing import Any

import pytest

import launchpad as lp
from tests.helpers.programs import single
from tests.nodes import Caller, Counter, add_once

both = pytest.mark.parametrize("launch_type", ["local_mt", "local_mp"])


def program_with(argument: Any) -> lp.Program:
    """A program whose learner has `argument` as its second argument."""
    program = lp.Program("p")
    program.add_node(lp.PyClassNode(Caller, None, argument), label="learner")
    return program


def refused(program: lp.Program) -> str:
    """Why a program cannot be planned."""
    with pytest.raises(lp.DefinitionError) as caught:
        lp.plan(program, "local_mp")
    return str(caught.value)


@both
def test_a_plan_names_workers_groups_indices_endpoints_and_calls(launch_type: str) -> None:
    program = lp.Program("p")
    with program.group("counter"):
        handles = [program.add_node(lp.CourierNode(Counter)) for _ in range(2)]
    program.add_node(lp.PyNode(add_once, handles[1]), label="caller")

    plan = lp.plan(program, launch_type)

    assert [w.name for w in plan.workers] == ["counter-0", "counter-1", "caller-0"]
    assert [(w.group, w.replica_index, w.num_replicas) for w in plan.workers] == [
        ("counter", 0, 2),
        ("counter", 1, 2),
        ("caller", 0, 1),
    ]
    assert list(plan.worker("counter-1").endpoints) == ["counter-1/courier"]
    assert plan.worker("caller-0").calls == ("counter-1",)
    assert len({w.seed for w in plan.workers}) == 3


class OwnNode(lp.PyNode):
    """A node class of a user's, in a module of the user's."""


def test_a_plan_names_the_modules_of_ours_that_a_forkserver_imports_once() -> None:
    program = lp.Program("p")
    program.add_node(lp.CourierNode(Counter), label="counter")
    program.add_node(OwnNode(threading.get_ident), label="own")

    assert lp.plan(program, "local_mp").modules == ("launchpad.nodes.courier",)


def test_a_plan_is_json_and_prints_as_a_table() -> None:
    resources = lp.Resources(
        cpus=0.5, memory="1kB", env={"A": "1"}, python="/opt/python", labels={"zone": "a"}
    )

    plan = lp.plan(single(lp.CourierNode(Counter), "counter", resources=resources), "local_mp")

    (worker,) = json.loads(plan.to_json())["workers"]
    assert (worker["name"], worker["gpus"]) == ("counter-0", [])
    assert (worker["env"], worker["python"]) == ({"A": "1"}, "/opt/python")
    assert worker["payload_bytes"] > 0
    assert worker["resources"] == {
        "cpus": 0.5,
        "gpus": 0,
        "memory": 1000,
        "accelerator": None,
        "env": {"A": "1"},
        "python": "/opt/python",
        "labels": {"zone": "a"},
        "placement": "",
    }
    assert "counter-0" in str(plan)


def test_planning_twice_gives_the_same_plan_and_does_not_change_the_program() -> None:
    program = lp.Program("p")
    counter = program.add_node(lp.CourierNode(Counter), label="counter")
    program.add_node(lp.PyNode(add_once, counter), label="caller")
    before = str(program), program.edges()

    assert lp.plan(program, "local_mp").to_dict() == lp.plan(program, "local_mp").to_dict()
    assert (str(program), program.edges()) == before


@both
def test_f01_an_unpicklable_argument_is_named_with_node_and_path(launch_type: str) -> None:
    program = program_with(types.SimpleNamespace(cfg={"deep": [{"lock": threading.Lock()}]}))

    with pytest.raises(
        lp.PayloadError, match=r"learner\.args\[1\]\.cfg\['deep'\]\[0\]\['lock'\]"
    ) as caught:
        lp.plan(program, launch_type)

    assert caught.value.node == "learner-0"
    assert caught.value.path == "learner.args[1].cfg['deep'][0]['lock']"
    assert "_thread.lock" in str(caught.value)
    assert "test_plan.py" in str(caught.value)


def test_f01_an_unpicklable_value_in_a_closure_or_inside_a_colocation_is_named() -> None:
    lock = threading.Lock()
    closure = lp.PyNode(lambda: lock.acquire())
    members = [lp.CourierNode(Counter), lp.PyNode(add_once, lock)]

    assert "learner.constructor.<closure lock>" in refused(single(closure, "learner"))
    colocated = single(lp.MultiThreadingColocation(members), "both")
    assert "both.nodes[1].args[0]" in refused(colocated)


@both
def test_what_stands_for_a_descriptor_is_refused_and_not_sent_as_its_number(
    launch_type: str,
) -> None:
    one, other = multiprocessing.Pipe()
    with one, other, socket.socket() as sock:
        for value, text in ((one, "one end of a pipe"), (sock, "cannot pickle 'socket' object")):
            with pytest.raises(lp.PayloadError, match=text) as caught:
                lp.plan(program_with({"end": value}), launch_type)

            assert caught.value.path == "learner.args[1]['end']"


def test_f02_a_list_that_contains_itself_is_the_same_error() -> None:
    recursive: list[Any] = [1]
    recursive.append({"again": recursive})

    with pytest.raises(lp.PayloadError, match="contains itself") as caught:
        lp.plan(program_with(recursive), "local_mp")

    assert caught.value.path == "learner.args[1][1]['again']"


def test_f02_an_argument_nested_100_000_deep_is_the_same_error() -> None:
    deep: Any = []
    for _ in range(100_000):
        deep = [deep]

    with pytest.raises(lp.PayloadError, match=r"nested 100,000 deep") as caught:
        lp.plan(program_with(deep), "local_mp")

    assert caught.value.node == "learner-0"
    assert caught.value.path.startswith("learner.args[1][0]")


def test_f03_a_payload_too_large_lists_its_largest_members(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lp.Backend, "max_payload_bytes", 1_000_000)
    node = lp.PyClassNode(
        Caller, {"small": b"1"}, times={"large": bytes(2_000_000), "medium": bytes(500_000)}
    )

    text = refused(single(node, "learner"))

    assert text.startswith("learner-0 ")
    assert "1,000,000" in text
    assert text.index("learner.kwargs['times']['large'] 2,0") < text.index(
        "learner.kwargs['times']['medium'] 500,0"
    )


def test_f07_a_handle_used_outside_a_running_program_says_which_and_what_to_do() -> None:
    program = lp.Program("p")
    handle = program.add_node(lp.CourierNode(Counter), label="counter")
    lp.plan(program, "local_mp")

    with pytest.raises(lp.NotRunningError, match=r"program 'p'.*Launch the program first"):
        handle.dereference()


def test_f08_a_handle_where_the_graph_cannot_see_it_is_an_error() -> None:
    program = lp.Program("p")
    handle = program.add_node(lp.CourierNode(Counter), label="counter")

    class Hides:
        def __reduce__(self) -> Any:
            return Hides, (handle,)

    Hides.__module__ = "__main__"
    program.add_node(lp.PyNode(add_once, Hides()), label="caller")

    assert "hidden where the graph cannot see it" in refused(program)


def never_added() -> object:
    return lp.CourierNode(Counter).create_handle()


def of_another_program() -> object:
    return lp.Program("other").add_node(lp.CourierNode(Counter), label="counter")


@pytest.mark.parametrize(
    ("stray", "why"),
    [
        (never_added(), r"caller\.args\[0\]\['of'\].*never added to a program"),
        (of_another_program(), "program 'other'"),
        (lp.CourierNode(Counter), "pass its handle"),
    ],
    ids=["never added", "of another program", "a node"],
)
def test_f09_a_handle_that_is_of_no_node_of_the_program_is_refused_with_its_path(
    stray: object, why: str
) -> None:
    program = single(lp.PyNode(add_once, {"of": stray}), "caller")

    assert re.search(why, refused(program))


def test_a_handle_of_a_node_that_does_not_serve_is_refused() -> None:
    program = lp.Program("p")
    handle = program.add_node(lp.PyNode(add_once, None), label="quiet")
    program.add_node(lp.PyNode(add_once, handle), label="caller")

    assert re.search(r"caller\.args\[0\].*serves nothing", refused(program))


def test_local_resources_of_an_unknown_group_are_warned_of() -> None:
    with pytest.warns(UserWarning, match="'cuonter'.* has learner"):
        lp.plan(program_with(1), "local_mp", {"cuonter": lp.PythonProcess()})


def test_a_program_without_nodes_is_refused() -> None:
    assert "no nodes" in refused(lp.Program("p"))


def test_an_unknown_launch_type_lists_the_known_ones() -> None:
    with pytest.raises(lp.DefinitionError, match=r"local_mp.*Did you mean 'local_mt'"):
        lp.plan(program_with(1), "lcoal_mt")


@pytest.mark.parametrize("where", ["a constructor of many nodes", "an argument in a colocation"])
def test_what_is_shared_is_pickled_once(where: str) -> None:
    pickled = []

    class Shared:
        def __reduce__(self) -> Any:
            pickled.append(1)
            return Shared, ()

        def __call__(self) -> None: ...

    program = lp.Program("p")
    if where == "a constructor of many nodes":
        constructor = functools.partial(Shared())
        with program.group("many"):
            for _ in range(10):
                program.add_node(lp.PyNode(constructor))
    else:
        members = [lp.PyNode(print, Shared()), lp.PyNode(print)]
        program.add_node(lp.MultiThreadingColocation(members), label="both")

    lp.plan(program, "local_mp")

    assert len(pickled) == 1
