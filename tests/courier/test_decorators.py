"""What of an object can be called, and what its class says about it."""

from __future__ import annotations

import functools
from typing import Any

import pytest

import launchpad as lp
from launchpad import courier
from launchpad.courier.server import decorators
from launchpad.courier.server.decorators import idempotent_methods, public_methods
from launchpad.courier.server.thread_pool import ThreadPool
from tests.courier.conftest import in_background
from tests.waiting import until


class Plain:
    """An object with a bit of everything that may or may not be served."""

    class Config:
        pass

    attribute = 3

    def __init__(self) -> None:
        self.compiled = functools.partial(max, 7)
        self.callback = lambda: "private"

    def step(self) -> str:
        return "step"

    def run(self) -> None: ...

    def running_average(self) -> float:
        return 0.5

    def _hidden(self) -> None: ...

    def __call__(self, x: int) -> int:
        return -x

    @property
    def costly(self) -> int:
        raise AssertionError("a property was evaluated")

    @functools.cached_property
    def cache(self) -> None:
        raise AssertionError("a cached property was evaluated")

    @staticmethod
    def helper() -> int:
        return 1

    @classmethod
    def name(cls) -> str:
        return cls.__name__


ALL = {"__call__", "helper", "name", "running_average", "step"}


def test_only_public_methods_of_the_class_are_served() -> None:
    assert set(public_methods(Plain())) == ALL
    assert set(public_methods(Plain(), {"step", "__call__"})) == ALL - {"step", "__call__"}


class Doubling:
    """A descriptor like those that libraries have for methods."""

    def __init__(self, function: Any) -> None:
        self.function = function

    def __get__(self, instance: object, owner: type) -> Any:
        return lambda x: 2 * self.function(instance, x)


class Lazy:
    """A descriptor like those that libraries have for attributes."""

    def __get__(self, instance: object, owner: type) -> Any:
        assert instance is None, "an attribute was evaluated"
        return self


class ForInstances:
    def __get__(self, instance: object, owner: type) -> Any:
        raise AttributeError("it is for instances only" if instance is None else "evaluated")


class Described:
    @functools.singledispatchmethod
    def show(self, value: object) -> str:
        return "something"

    @show.register
    def _(self, value: int) -> str:
        return "an int"

    def power(self, exponent: int, base: int) -> int:
        return int(base**exponent)

    square = functools.partialmethod(power, 2)

    @Doubling
    def twice(self, x: int) -> int:
        return x

    @functools.lru_cache  # noqa: B019
    def cached(self, x: int) -> int:
        return x

    lazy = Lazy()
    of_instances = ForInstances()


def test_methods_that_are_descriptors_are_served(serve, connect, address) -> None:
    serve(address).bind_object(Described())
    client = connect(address)

    assert courier.list_methods(client) == ["cached", "power", "show", "square", "twice"]
    assert (client.show(1), client.show("a")) == ("an int", "something")
    assert (client.square(5), client.twice(4), client.cached(3)) == (25, 8, 3)


def test_descriptors_may_have_priority_and_be_idempotent(serve, address) -> None:
    class Marked:
        @courier.priority
        @courier.idempotent
        @functools.singledispatchmethod
        def show(self, value: object) -> None: ...

        @courier.priority
        @staticmethod
        def static() -> None: ...

    server = serve(address)
    server.bind_object(Marked())

    assert server._methods.urgent == {b"show", b"static"}
    assert idempotent_methods(Marked) == ("show",)


def test_a_class_may_restrict_what_it_serves() -> None:
    @courier.serves(only=["step"])
    class Restricted(Plain): ...

    assert set(public_methods(Restricted())) == {"step"}


def test_a_class_may_serve_run_and_attributes_of_the_instance_also() -> None:
    @courier.serves(also=["run", "compiled"])
    class Extended(Plain): ...

    served = public_methods(Extended())

    assert set(served) == {*ALL, "run", "compiled"}
    assert served["compiled"](9) == 9


@pytest.mark.parametrize(
    ("decorate", "words"),
    [
        (lambda: courier.serves(only=["stepp"])(Plain), "Plain has no method 'stepp'"),
        (lambda: courier.serves(also="step"), "list of strings"),
        (lambda: courier.serves(also=["_hidden"]), "begins with '_'"),
    ],
)
def test_names_that_could_not_be_called_are_refused_where_they_are_written(decorate, words) -> None:
    with pytest.raises(TypeError, match=words):
        decorate()


def test_an_attribute_that_the_constructor_did_not_make_is_named() -> None:
    @courier.serves(also=["missing"])
    class Wrong(Plain): ...

    with pytest.raises(TypeError, match="Wrong is to serve 'missing'"):
        public_methods(Wrong())


def test_a_client_cannot_call_what_is_not_served(serve, connect, address) -> None:
    serve(address).bind_object(Plain(), exclude={"helper"})
    client = connect(address)

    assert courier.list_methods(client) == sorted(ALL - {"helper"})
    assert (client.step(), client.name(), client(5)) == ("step", "Plain", -5)
    for name in ("run", "costly", "compiled", "helper"):
        with pytest.raises(courier.MethodNotFound, match=name):
            getattr(client, name)()
    with pytest.raises(AttributeError, match="underscore"):
        client._hidden()


def test_idempotent_methods_are_known_from_the_class() -> None:
    class Table:
        @courier.idempotent
        def get(self) -> None: ...

        def put(self) -> None: ...

    assert idempotent_methods(Table) == ("get",)


def test_priority_calls_overtake_others(serve, connect, unix_address, gate, monkeypatch) -> None:
    monkeypatch.setattr(ThreadPool, "_may_grow", lambda self: False)
    order: list[str] = []

    def ordinary() -> None:
        order.append("ordinary")

    @courier.priority
    def urgent() -> None:
        order.append("urgent")

    server = serve(unix_address, size=1, block=gate.wait, ordinary=ordinary, urgent=urgent)
    pool = server._core.pool
    clients = [connect(unix_address) for _ in range(9)]
    for client in clients:
        client.ordinary()
    order.clear()
    until(lambda: not pool._running.threads)  # no thread stays with a connection
    calls = [in_background(connect(unix_address).block)]
    assert gate.begun.wait(10)
    calls += [in_background(client.ordinary) for client in clients[:8]]
    until(lambda: len(pool._jobs) == 8)
    calls.append(in_background(clients[8].urgent))
    until(lambda: len(pool._jobs) == 9)
    gate.set()
    for call in calls:
        call.result(10)

    assert order == ["urgent"] + ["ordinary"] * 8


def test_sound_30_the_names_that_a_server_is_warned_of_are_those_of_the_client() -> None:
    own = {name for name in dir(courier.Client) if not name.startswith("_")}

    assert own == decorators.CLIENT_NAMES


def test_sound_30_a_method_that_the_client_has_itself_is_warned_of(serve, unix_address) -> None:
    class Table:
        def stats(self) -> int:
            return 3

        def futures(self) -> int:
            return 4

    server = serve(unix_address)
    with pytest.warns(UserWarning, match=r"client\.stats is the client's own.*futures\.stats\("):
        server.bind_object(Table(), exclude=["futures"])
    with pytest.warns(UserWarning, match="is the client's own") as warned:
        lp.CourierNode(Table)

    assert [each.filename for each in warned] == [__file__] * 2


def test_sound_30_a_clients_attributes_are_neither_true_nor_set(client_of) -> None:
    client = client_of(done=lambda: False)

    for method in (client.done, client.futures.done, client.aio.done):
        with pytest.raises(TypeError, match=r"'done' of a courier server.*: call it"):
            bool(method)
    with pytest.raises(AttributeError, match="'done' to set"):
        client.done = True

    assert client.done() is False
