"""Calls, over each carrier."""

from __future__ import annotations

import asyncio
import copy
import multiprocessing
import pickle

import numpy as np
import pytest

from launchpad import courier
from launchpad.courier import keyring
from tests.courier.conftest import awaited, begin_source, in_background, printed_by


@pytest.mark.every_transport
def test_a_call_returns_what_the_method_returns(client_of) -> None:
    client = client_of(add=lambda a, b=0, *c, **d: (a, b, c, d), __call__=lambda x: -x)

    assert client.add(1, 2, 3, x=4) == (1, 2, (3,), {"x": 4})
    assert client(5) == -5
    assert client.futures(5).result(10) == -5
    assert asyncio.run(awaited(client.aio.add(1, b=2))) == (1, 2, (), {})
    assert asyncio.run(awaited(client.aio(5))) == -5


def test_parameters_may_have_any_name(serve, connect, address) -> None:
    serve(address, m=lambda **k: k)

    names = {"method": 1, "self": 2, "args": 3, "kwargs": 4, "name": 5}

    assert connect(address).m(**names) == names
    assert connect(address).futures.m(**names).result(10) == names


def test_what_is_served_may_be_false(client_of) -> None:
    class Log(list):
        __call__ = list.__len__

    client = client_of(length=Log())

    assert client.length() == 0


@pytest.mark.every_transport
def test_a_missing_method_names_itself_the_server_and_near_names(serve, connect, address) -> None:
    serve(address, name="learner-0", get_weights=lambda: 1, save=lambda: 2)

    with pytest.raises(courier.MethodNotFound) as caught:
        connect(address).get_weight()

    message = str(caught.value)
    assert "learner-0" in message
    assert "'get_weight'" in message
    assert "Did you mean get_weights?" in message
    assert "It serves: get_weights, save." in message
    assert isinstance(caught.value, AttributeError)
    assert caught.value.method == "get_weight"
    assert caught.value.available == ("get_weights", "save")


def test_an_attribute_error_inside_a_method_is_not_a_missing_method(client_of) -> None:
    client = client_of(m=lambda: object().nothing)

    with pytest.raises(AttributeError, match="nothing") as caught:
        client.m()

    assert not isinstance(caught.value, courier.MethodNotFound)


def test_rebinding_and_unbinding_take_effect_with_the_next_call(serve, connect, address) -> None:
    server = serve(address, m=lambda: "old")
    client = connect(address)
    client.m()

    server.bind("m", lambda: "new")
    after = client.m()
    server.unbind("m")

    assert after == "new"
    with pytest.raises(courier.MethodNotFound):
        client.m()
    with pytest.raises(KeyError, match="no method 'm'"):
        server.unbind("m")


def test_what_is_not_bound_goes_to_the_fallback(serve, connect, address) -> None:
    server = serve(address, known=lambda: "known")
    server.bind_fallback(lambda name, args, kwargs: (name, args, kwargs), lambda: ["dynamic"])
    client = connect(address)

    answer = client.anything(1, k=2)

    assert answer == ("anything", (1,), {"k": 2})
    assert client.known() == "known"
    assert courier.list_methods(client) == ["dynamic", "known"]


@pytest.mark.parametrize(
    ("make", "kind", "words"),
    [
        (lambda: courier.Server().bind("m", 3), TypeError, "takes a callable, not int"),
        (lambda: courier.Client("http://example.org"), ValueError, "unix:/absolute/path"),
        (lambda: courier.Client(7077), TypeError, "a str, or a callable"),
        (lambda: courier.Client("unix:/s", token=bytes(65)), ValueError, "at most 64 bytes"),
        (lambda: courier.Server(token=bytes(65)), ValueError, "at most 64 bytes"),
        (lambda: keyring.add("unix:/s", bytes(65)), ValueError, "at most 64 bytes"),
        (lambda: courier.Client("inproc:x", call_timeout=0), ValueError, "positive"),
    ],
)
def test_a_mistake_is_refused_at_once(make, kind, words) -> None:
    with pytest.raises(kind, match=words):
        make()


@pytest.mark.every_transport
@pytest.mark.parametrize("size", [0, 10, 5_000, 1_000_000])
def test_arrays_arrive_private_and_writable(serve, connect, address, size) -> None:
    kept: list[np.ndarray] = []

    def keep(value: np.ndarray) -> np.ndarray:
        value += 1
        kept.append(value)
        return value

    serve(address, keep=keep)
    mine = np.arange(size, dtype=np.float32)

    returned = connect(address).keep(mine)
    returned += 1
    of_future = connect(address).futures.keep(mine).result(10)
    of_future += 1

    assert np.array_equal(mine, np.arange(size))
    assert np.array_equal(kept[0], np.arange(size) + 1)
    assert np.array_equal(returned, np.arange(size) + 2)
    assert np.array_equal(of_future, returned)


@pytest.mark.every_transport
def test_many_arrays_in_one_call_arrive_in_order(client_of) -> None:
    client = client_of(echo=lambda value: value)
    arrays = [np.full(n % 7 * 1000, n) for n in range(1500)]

    returned = client.echo(arrays)

    assert all(np.array_equal(a, b) for a, b in zip(arrays, returned, strict=True))


@pytest.mark.every_transport
def test_the_end_of_a_pipe_is_refused_as_it_would_be_another_file_elsewhere(client_of) -> None:
    one, other = multiprocessing.Pipe()
    client = client_of(kind=lambda value: type(value).__name__, end=lambda: one)

    with one, other:
        for send in (client.kind, client.futures.kind):
            for value in (one, [one], lambda: one):
                with pytest.raises(TypeError, match="one end of a pipe"):
                    send(value)
        with pytest.raises(courier.RemoteError, match="one end of a pipe"):
            client.end()


def test_an_exception_that_has_the_end_of_a_pipe_arrives_without_it(client_of) -> None:
    one, other = multiprocessing.Pipe()

    def fail() -> None:
        error = LookupError("it broke")
        error.end, error.code = one, 7  # type: ignore[attr-defined]
        raise error

    with one, other, pytest.raises(LookupError, match="it broke") as caught:
        client_of(fail=fail).fail()

    assert not hasattr(caught.value, "end")
    assert caught.value.code == 7  # type: ignore[attr-defined]


def test_names_with_underscore_never_make_a_call(client_of) -> None:
    client = client_of(m=lambda: 1)

    for name in ["__len__", "_private", "__array__", "__deepcopy__", "_repr_html_"]:
        for methods in (client, client.futures, client.aio):
            assert not hasattr(methods, name)
    assert "Client(" in repr(client)


def test_clients_pickle_copy_and_compare_by_address(serve, connect, address) -> None:
    serve(address, name="server", token=b"secret", m=lambda: 1)
    client = connect(address, token=b"secret", call_timeout=7.0, failure_check=lambda: None)
    client.m()

    pickled = pickle.dumps(client)
    copied = pickle.loads(pickled)

    assert b"secret" not in pickled
    assert copied == client == copy.copy(client)
    assert hash(copied) == hash(client)
    assert copied != connect("inproc:another")
    assert client != 3
    assert copied.address == address


def test_a_pickled_client_sends_lambdas_and_classes_of_the_script_from_another_process(
    serve, unix_address
) -> None:
    methods = {"apply": lambda fn, x: fn(x), "kind": lambda obj: type(obj).__name__}
    serve(unix_address, token=b"secret", **methods)
    pickled = pickle.dumps(courier.Client(unix_address, token=b"secret", call_timeout=10))
    source = f"""{begin_source()}
import pickle
from launchpad.courier import keyring
keyring.add("unix:", b"secret")
class Local:
    def __init__(self, n): self.n = n
with pickle.loads({pickled!r}) as client:
    print(client.apply(lambda x: x + 1, 1), client.kind(Local(1)), client.apply(Local, 7).n)
"""

    assert printed_by(source) == "2 Local 7\n"


def test_a_method_outlives_the_client_it_was_taken_from(serve, address) -> None:
    serve(address, echo=lambda value: value)

    method = courier.Client(address).echo

    assert [method(i) for i in range(3)] == [0, 1, 2]
    del method


def test_a_servers_own_close_is_called_like_any_other_method(client_of) -> None:
    client = client_of(close=lambda: "closed by the server")

    assert client.close() == "closed by the server"


@pytest.mark.every_transport
def test_a_closed_client_opens_again_with_the_next_call(client_of) -> None:
    client = client_of(echo=lambda value: value)
    client.echo(1)

    courier.close(client)

    assert client.echo(2) == 2
    assert client.futures.echo(3).result(10) == 3


@pytest.mark.every_transport
def test_many_threads_share_one_client(client_of) -> None:
    client = client_of(echo=lambda value: value)

    def work(k: int) -> list[object]:
        sync = [client.echo((k, i)) for i in range(30)]
        return sync + [client.futures.echo((k, i)).result(20) for i in range(30, 60)]

    results = [in_background(work, k) for k in range(20)]

    for k, result in enumerate(results):
        assert result.result(60) == [(k, i) for i in range(60)]
