"""What a remote method can fail with, and what the caller sees."""

from __future__ import annotations

import json
import pickle
import sys
import threading
import traceback
from pathlib import Path

import pytest

from launchpad import courier

REPOSITORY = Path(__file__).parent.parent.parent


class TwoArguments(ValueError):
    """Pickles, but does not unpickle."""

    def __init__(self, code: int, detail: str) -> None:
        super().__init__(f"{code}: {detail}")
        self.code = code


class Unpicklable(RuntimeError):
    def __init__(self) -> None:
        super().__init__("has a lock")
        self.lock = threading.Lock()


class BadRepr:
    def __repr__(self) -> str:
        raise RuntimeError("no repr")

    def __reduce__(self):
        raise TypeError("no pickle")


def fail(error: BaseException) -> None:
    raise error


def fails_with(client: courier.Client, *args: object) -> Exception:
    """What both ways of calling raise."""
    future_error = client.futures.m(*args).exception(20)
    with pytest.raises(Exception) as caught:  # noqa: PT011
        client.m(*args)
    assert type(future_error).__name__ == type(caught.value).__name__
    return caught.value


@pytest.mark.every_transport
def test_an_exception_arrives_as_its_own_type_with_the_remote_traceback(
    serve, connect, address
) -> None:
    def m(text: str) -> object:
        return json.loads(text)

    serve(address, name="parser", m=m)

    error = fails_with(connect(address), "{nonsense")

    assert type(error) is json.JSONDecodeError
    assert error.pos == 1
    text = str(error.__cause__)
    assert isinstance(error.__cause__, courier.RemoteTraceback)
    assert "In 'm' of parser" in text
    assert "return json.loads(text)" in text
    assert "launchpad/courier/server/dispatcher.py" not in text
    assert "".join(traceback.format_exception(error)).count("JSONDecodeError") == 2


def test_the_cause_of_the_remote_exception_is_part_of_its_traceback(
    serve, connect, address
) -> None:
    def m() -> None:
        try:
            1 / 0  # noqa: B018
        except ZeroDivisionError as error:
            raise KeyError("outer") from error

    serve(address, m=m)

    error = fails_with(connect(address))

    assert type(error) is KeyError
    assert "ZeroDivisionError" in str(error.__cause__)
    assert "direct cause" in str(error.__cause__)


def test_through_two_servers_both_tracebacks_arrive(serve, connect, address, other_address) -> None:
    def innermost() -> None:
        raise ValueError("deep")

    serve(other_address, name="inner", m=innermost)
    inner = connect(other_address)
    serve(address, name="outer", m=lambda: inner.m())

    error = fails_with(connect(address))

    assert type(error) is ValueError
    assert "In 'm' of outer" in str(error.__cause__)
    assert "In 'm' of inner" in str(error.__cause__)
    assert 'raise ValueError("deep")' in str(error.__cause__)


def test_f31_endless_recursion_is_a_recursion_error_and_the_server_serves_on(
    serve, connect, address
) -> None:
    def dive(n: int) -> int:
        return dive(n + 1) + 1

    serve(address, m=dive, echo=lambda value: value)
    client = connect(address)

    error = fails_with(client, 0)

    assert type(error) is RecursionError
    assert client.echo(1) == 1


@pytest.mark.every_transport
def test_f32_a_result_that_cannot_be_pickled_is_described(serve, connect, address) -> None:
    serve(address, name="server", m=threading.Lock, n=lambda: 1)

    error = fails_with(connect(address))

    assert type(error) is courier.RemoteError
    assert error.type_name == "_thread.lock"
    assert "unlocked" in error.remote_repr
    assert "cannot pickle" in error.traceback
    assert (error.server, error.method, error.address) == ("server", "m", address)


def test_f32_an_exception_that_cannot_be_pickled_is_described_and_still_caught(
    serve, connect, address
) -> None:
    serve(address, m=lambda: fail(Unpicklable()))

    error = fails_with(connect(address))

    assert isinstance(error, courier.RemoteError)
    assert isinstance(error, RuntimeError)
    assert "Unpicklable" in error.type_name
    assert "has a lock" in error.remote_repr
    assert "raise error" in error.traceback


def test_f32_even_a_repr_that_raises_does_not_matter(serve, connect, address) -> None:
    serve(address, m=BadRepr)

    error = fails_with(connect(address))

    assert isinstance(error, courier.RemoteError)
    assert "whose repr raises RuntimeError" in error.remote_repr


@pytest.mark.every_transport
def test_f33_an_exception_that_does_not_unpickle_is_still_caught_by_its_type(
    serve, connect, address
) -> None:
    serve(address, m=lambda: fail(TwoArguments(404, "gone")))

    error = fails_with(connect(address))

    assert isinstance(error, TwoArguments)
    assert isinstance(error, courier.RemoteError)
    assert error.code == 404
    assert "404: gone" in str(error)
    assert "raise error" in str(error.__cause__)


def test_f33_and_it_can_itself_be_pickled(serve, connect, address) -> None:
    serve(address, m=lambda: fail(TwoArguments(404, "gone")))
    error = fails_with(connect(address))

    copied = pickle.loads(pickle.dumps(error))

    assert isinstance(copied, TwoArguments)
    assert isinstance(copied, courier.RemoteError)
    assert (str(copied), copied.code) == (str(error), 404)


def test_an_exception_whose_type_cannot_be_imported_here_arrives_as_text(
    unix_address, connect, python
) -> None:
    source = f"""
import sys, types; sys.path.insert(0, {str(REPOSITORY)!r})
exec("class Alien(Exception): pass", (module := types.ModuleType("elsewhere")).__dict__)
sys.modules["elsewhere"] = module
from launchpad import courier
def m(): raise module.Alien("from afar")
server = courier.Server("far", address={unix_address!r})
server.bind("m", m)
server.start()
server.join()
"""

    with python(source):
        error = fails_with(connect(unix_address))

    assert type(error) is courier.RemoteError
    assert error.type_name == "elsewhere.Alien"
    assert "from afar" in str(error)
    assert "Alien" in str(error.__cause__)


@pytest.mark.every_transport
def test_f34_a_traceback_of_200_kb_arrives_whole(serve, connect, address) -> None:
    serve(address, m=lambda: fail(ValueError("begin " + "x" * 200_000 + " end")))

    error = fails_with(connect(address))

    assert str(error).endswith("x end")
    assert str(error.__cause__).endswith('x end\n"""')


@pytest.mark.parametrize("leave", [SystemExit(3), KeyboardInterrupt(), GeneratorExit()])
def test_what_would_end_a_process_ends_neither_server_nor_caller(
    serve, connect, address, leave
) -> None:
    serve(address, m=lambda: fail(leave), quit=sys.exit, echo=lambda value: value)
    client = connect(address)

    error = fails_with(client)

    assert type(error) is courier.RemoteError
    assert error.type_name == type(leave).__name__
    with pytest.raises(courier.RemoteError, match="SystemExit"):
        client.quit()
    assert client.echo(1) == 1


def test_a_courier_error_inside_a_method_does_not_look_like_one_of_this_call(
    serve, connect, address, other_address
) -> None:
    absent = connect(other_address, wait_for_ready=False)
    serve(address, m=lambda: absent.m())

    error = fails_with(connect(address))

    assert type(error) is courier.RemoteError  # NotSent would say that repeating is safe
    assert error.type_name.endswith("NotSent")


@pytest.mark.every_transport
def test_arguments_that_do_not_unpickle_over_there_are_named_and_nothing_runs(
    serve, connect, address
) -> None:
    ran = threading.Event()
    serve(address, m=lambda value: ran.set())

    error = fails_with(connect(address), TwoArguments(1, "x"))

    assert type(error) is courier.RemoteError
    assert "the arguments of 'm' cannot be unpickled" in str(error)
    assert not ran.is_set()


def test_wrong_arguments_are_a_type_error(serve, connect, address) -> None:
    serve(address, m=lambda a: a)

    error = fails_with(connect(address))

    assert type(error) is TypeError
    assert "missing 1 required positional argument" in str(error)
