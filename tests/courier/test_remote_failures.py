"""What a remote method can fail with, and what the caller sees."""

from __future__ import annotations

import errno
import json
import pickle
import threading
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

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


@dataclass(frozen=True)
class OutOfRange(Exception):
    """Knows its own fields, and no other attribute may be set."""

    low: int
    high: int


class NotThere(OSError):
    """A class with C fields and a constructor of its own."""

    def __init__(self, name: str, *, looked_at: list[str]) -> None:
        super().__init__(errno.ENOENT, "not there", name)
        self.looked_at = looked_at


class Failures(ExceptionGroup[Exception]):
    """The example of Python's reference: a group with a constructor of its own."""

    def __new__(cls, errors: list[Exception], code: int) -> Failures:
        self = super().__new__(cls, f"code {code}", errors)
        self.code = code  # type: ignore[attr-defined]
        return self


_lock = threading.Lock()


class BadRepr:
    def __repr__(self) -> str:
        raise RuntimeError("no repr")

    def __reduce__(self):
        raise TypeError("no pickle")


def fail(error: BaseException) -> None:
    raise error


def fails_with(client: courier.Client, *args: object) -> Exception:
    """What both ways of calling raise, one after the other: the server serves on."""
    future_error = client.futures.m(*args).exception(20)
    with pytest.raises(Exception) as caught:  # noqa: PT011
        client.m(*args)
    assert type(future_error).__name__ == type(caught.value).__name__
    return caught.value


@pytest.fixture
def error_of(serve, connect, address) -> Callable[..., Any]:
    """Calls a method with these arguments, at a server; gives what both ways of calling raise."""

    def call(method: Callable[..., object], *args: object) -> Exception:
        serve(address, m=method)
        return fails_with(connect(address), *args)

    return call


@pytest.mark.every_transport
def test_an_exception_arrives_as_its_own_type_with_the_remote_traceback(error_of) -> None:
    def m(text: str) -> object:
        return json.loads(text)

    error = error_of(m, "{nonsense")

    assert type(error) is json.JSONDecodeError
    assert error.pos == 1
    text = str(error.__cause__)
    assert isinstance(error.__cause__, courier.RemoteTraceback)
    assert "In 'm' of server" in text
    assert "return json.loads(text)" in text
    assert "launchpad/courier/server/dispatcher.py" not in text
    assert "".join(traceback.format_exception(error)).count("JSONDecodeError") == 2


@pytest.mark.every_transport
def test_f31_endless_recursion_is_a_recursion_error_and_the_server_serves_on(error_of) -> None:
    def dive(n: int) -> int:
        return dive(n + 1) + 1

    assert type(error_of(dive, 0)) is RecursionError


@pytest.mark.parametrize("leave", [SystemExit(3), KeyboardInterrupt(), GeneratorExit()])
def test_what_would_end_a_process_ends_neither_server_nor_caller(error_of, leave) -> None:
    error = error_of(lambda: fail(leave))

    assert type(error) is courier.RemoteError
    assert error.type_name == type(leave).__name__


def test_what_it_was_raised_from_passes_two_servers(serve, connect, address, other_address) -> None:
    def m() -> None:
        try:
            fail(TwoArguments(404, "gone"))
        except TwoArguments:
            raise ValueError("deep")  # noqa: B904

    serve(other_address, name="inner", m=m)
    inner = connect(other_address)
    serve(address, name="outer", m=lambda: inner.m())

    error: Any = fails_with(connect(address))

    assert type(error) is ValueError
    assert error.__cause__.origin == "inner"
    assert type(error.__cause__.__context__) is TwoArguments
    for text in ("In 'm' of outer", "In 'm' of inner", 'raise ValueError("deep")'):
        assert text in str(error.__cause__)


class Holder:
    def __init__(self, part: object) -> None:
        self.name, self.part = "holder", part
        self.circle = [self]


class Careful(Holder):
    """Leaves out what cannot be pickled, but for one."""

    def __getstate__(self) -> dict[str, object]:
        return {"name": self.name, "table": {"rows": self.part}}


@pytest.mark.parametrize(
    ("result", "where"),
    [
        (
            Holder(threading.Lock()),
            "Holder, which cannot be pickled because of .part, a _thread.lock",
        ),
        (Careful(threading.Lock()), "because of .table['rows'], a _thread.lock"),
        ({"best": [1, Holder(_lock)]}, "because of ['best'][1].part, a _thread.lock"),
        (_lock, "a _thread.lock, which cannot be pickled: "),
        (Holder(lambda: _lock), ".part.<global _lock>, a _thread.lock"),
    ],
    ids=["attribute", "state", "nested", "itself", "function"],
)
def test_f32_a_result_that_cannot_be_pickled_is_described_with_method_and_attribute(
    client_of, address, result, where
) -> None:
    client = client_of(m=lambda: result, rows=lambda: iter([result]))

    error: Any = fails_with(client)
    with pytest.raises(courier.RemoteError) as of_stream:
        list(client.rows())

    assert type(error) is courier.RemoteError
    assert "'m' of server has run, and returned a " in str(error)
    assert where in str(error)
    assert "'rows' of server has run, and had in its stream a " in str(of_stream.value)
    assert where in str(of_stream.value)
    assert error.type_name.endswith(type(result).__qualname__)
    assert error.remote_repr == repr(result)
    assert "cannot pickle" in error.traceback
    assert (error.server, error.method, error.address) == ("server", "m", address)


def test_sound_32_an_argument_that_cannot_be_pickled_is_named(client_of) -> None:
    client = client_of(m=lambda *args, **kwargs: 1)

    with pytest.raises(TypeError, match="cannot pickle") as caught:
        client.m([1], held=Holder(threading.Lock()))

    note = caught.value.__notes__[-1]  # Python 3.14 adds some of its own
    assert "argument 'held' of the call" in note
    assert "because of .part, a _thread.lock" in note


def test_f32_f33_an_exception_that_cannot_be_sent_is_described_and_caught(error_of) -> None:
    original = Unpicklable()
    original.step = 7  # type: ignore[attr-defined]

    error = error_of(lambda: fail(original))
    copied = pickle.loads(pickle.dumps(error))

    for each in (error, copied):
        assert isinstance(each, courier.RemoteError)
        assert isinstance(each, Unpicklable)
        assert str(each) == str(error)
    assert "Unpicklable" in error.type_name
    assert "has a lock" in error.remote_repr
    assert "raise error" in error.traceback
    assert error.step == 7


def test_f32_even_a_repr_that_raises_does_not_matter(error_of) -> None:
    error = error_of(BadRepr)

    assert isinstance(error, courier.RemoteError)
    assert "whose repr raises RuntimeError" in error.remote_repr


@pytest.mark.parametrize(
    "original",
    [
        TwoArguments(404, "gone"),
        OutOfRange(1, high=2),
        NotThere("x.npz", looked_at=["/data"]),
        UnicodeDecodeError("utf-8", b"\xff", 0, 1, "bad start"),
        ImportError("no such module", name="fast", path="/lib"),
        StopIteration(3),
    ],
    ids=lambda error: type(error).__name__,
)
def test_sound_14_an_exception_keeps_arguments_attributes_and_notes(error_of, original) -> None:
    vars(original)["__notes__"] = ["while it read x.npz"]  # one of them is frozen

    error = error_of(lambda: fail(original))

    assert type(error) is type(original)
    assert (error.args, str(error)) == (original.args, str(original))
    assert vars(error) == vars(original)
    for name in ("errno", "filename", "object", "reason", "name", "path", "value"):
        assert getattr(error, name, None) == getattr(original, name, None)


def test_sound_14_except_star_works_across_a_call(client_of) -> None:
    inner = Failures([TwoArguments(404, "gone"), OutOfRange(1, 2)], 7)
    group = ExceptionGroup("both", [KeyError("k"), inner])
    group.add_note("in epoch 3")
    client = client_of(m=lambda: fail(group))

    met: list[BaseException] = []
    try:
        client.m()
    except* TwoArguments as found:
        met += found.exceptions
    except* KeyError as found:
        met += found.exceptions
    except* OutOfRange:
        pass

    error: Any = fails_with(client)
    assert [type(each) for each in met] == [ExceptionGroup, KeyError]
    assert (error.message, error.__notes__) == ("both", ["in epoch 3"])
    assert type(error.exceptions[1]) is Failures
    assert error.exceptions[1].code == 7
    assert error.exceptions[1].exceptions[0].code == 404
    assert "404: gone" in str(error.__cause__)


def test_sound_14_members_of_a_group_arrive_each_as_well_as_it_can(error_of) -> None:
    """A failed call among them must not look like one of this call: it would say that to repeat is safe."""
    members = [TwoArguments(404, "gone"), Unpicklable(), courier.NotSent("nothing ran")]
    group = ExceptionGroup("all", members)
    group.lock = threading.Lock()  # type: ignore[attr-defined]

    error = error_of(lambda: fail(group))

    assert type(error) is ExceptionGroup
    whole, described, not_sent = error.exceptions
    assert (type(whole), whole.code) == (TwoArguments, 404)
    assert isinstance(described, courier.RemoteError)
    assert isinstance(described, Unpicklable)
    assert "has a lock" in str(described)
    assert type(not_sent) is courier.RemoteError


def test_sound_14_cause_and_context_come_along(error_of) -> None:
    def m() -> None:
        try:
            fail(TwoArguments(404, "gone"))
        except TwoArguments as first:
            try:
                raise LookupError("no other copy")
            except LookupError:
                raise RuntimeError("no data") from first

    error = error_of(m)

    assert isinstance(error.__cause__, courier.RemoteTraceback)
    assert "direct cause" in str(error.__cause__)
    came_from: Any = error.__cause__.__context__
    assert (type(came_from), came_from.code) == (TwoArguments, 404)
    text = "".join(traceback.format_exception(error))
    assert text.count("404: gone") == 1


def test_an_exception_of_a_type_unknown_here_arrives_as_text(unix_address, connect, python) -> None:
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


def test_f34_a_traceback_of_200_kb_arrives_whole(error_of) -> None:
    error = error_of(lambda: fail(ValueError("begin " + "x" * 200_000 + " end")))

    assert str(error).endswith("x end")
    assert str(error.__cause__).endswith('x end\n"""')


def test_a_courier_error_of_a_method_does_not_look_like_one_of_this_call(error_of) -> None:
    error = error_of(lambda: fail(courier.NotSent("nothing ran")))

    assert type(error) is courier.RemoteError  # NotSent would say that repeating is safe
    assert error.type_name.endswith("NotSent")


def test_arguments_that_do_not_unpickle_over_there_are_named_and_nothing_runs(error_of) -> None:
    ran = threading.Event()

    error = error_of(lambda value: ran.set(), TwoArguments(1, "x"))

    assert type(error) is courier.RemoteError
    assert "the arguments of 'm' cannot be unpickled" in str(error)
    assert not ran.is_set()
