"""Classes that travel by value keep their attributes where they arrive."""

from __future__ import annotations

import ctypes
import dataclasses
import enum
import functools
import gc
import pickle
import subprocess
import sys
import threading
import typing
import weakref
from typing import Any

import cloudpickle
import pytest

from launchpad.courier.codec import by_value
from tests.courier.conftest import begin_source, printed_by


def a_class() -> Any:
    """One that can only travel by value, since no name leads to it."""

    class Message:
        count = 0

        def method(self) -> int:
            return type(self).count

    return Message


def copied(value: object) -> Any:
    return pickle.loads(by_value.dumps(value, 5, lambda _: True))


def printed_elsewhere(reader: str, *values: object) -> str:
    """What this code prints in a process of its own, with the values as `bodies`."""
    bodies = [by_value.dumps(value, 5, lambda _: True) for value in values]
    source = f"{begin_source()}import pickle\nbodies = {bodies!r}\n{reader}"
    return printed_by(source)


def test_what_singledispatch_makes_travels_by_value_with_all_that_it_chooses_from() -> None:
    @functools.singledispatch
    def size(value: object) -> int:
        """How many leaves a value has."""
        return 1

    @size.register(list)
    def _(values: list[object]) -> int:
        return sum(size(each) for each in values)

    class Shape:
        @functools.singledispatchmethod
        def describe(self, value: object) -> str:
            return "object"

        @describe.register
        def _(self, value: int) -> str:
            return "int"

    copy, copied_class = pickle.loads(by_value.dumps((size, Shape), 5))

    assert copy is not size
    assert copy([1, [2, 3], "four"]) == 4
    assert (copy.__name__, copy.__doc__) == ("size", size.__doc__)
    assert (copied_class().describe(1), copied_class().describe("1")) == ("int", "object")


def test_objects_of_the_library_that_pickle_refuses_travel_with_the_code_that_uses_them() -> None:
    """With what a thread that begins there would find in them: a local that is empty, a default."""
    script: dict[str, Any] = {"__name__": "__main__"}
    exec(LIBRARY_OBJECTS, script)
    body = by_value.dumps(script["use"], 5)
    source = f"{begin_source()}import pickle\nprint(*pickle.loads({body!r})(), sep=' | ')"

    used = printed_by(source).strip().split(" | ")

    assert used == [
        "41 41 The answer.",
        "[] here",
        "5 nothing",
        "1 1",
        "UserId 7",
        "__main__.Params",
        "Parts",
    ]


LIBRARY_OBJECTS = """
import contextvars, functools, threading, typing, weakref

class Lazy:
    made = 0
    @functools.cached_property
    def answer(self):
        "The answer."
        self.made += 1
        return 40 + self.made

of_thread = threading.local()
of_thread.seen = "in the script"
with_default = contextvars.ContextVar("with_default", default=5)
without = contextvars.ContextVar("without")
by_name = weakref.WeakValueDictionary()
by_object = weakref.WeakKeyDictionary()
UserId = typing.NewType("UserId", int)
Params = typing.ParamSpec("Params")
Parts = typing.TypeVarTuple("Parts")
without.set("set in the script")

def use():
    lazy = Lazy()
    yield f"{lazy.answer} {lazy.answer} {Lazy.answer.__doc__}"
    names = list(vars(of_thread))
    of_thread.seen = "here"
    yield f"{names} {of_thread.seen}"
    yield f"{with_default.get()} {without.get('nothing')}"
    by_name["lazy"] = by_object[lazy] = lazy
    yield f"{len(by_name)} {len(by_object)}"
    yield f"{UserId.__name__} {UserId(7)}"
    yield f"{Params.__module__}.{Params.__name__}"
    yield Parts.__name__
"""


def test_a_dataclass_that_has_travelled_by_value_can_be_a_base() -> None:
    source = """
import dataclasses, pickle, sys
from launchpad.courier.codec import by_value

def make():
    @dataclasses.dataclass
    class Base:
        x: int
        y: list = dataclasses.field(default_factory=list)
    return Base

if sys.argv[1] == "write":
    sys.stdout.buffer.write(by_value.dumps(make(), 5))
else:
    @dataclasses.dataclass
    class Derived(pickle.load(sys.stdin.buffer)):
        z: int = 3
    print(Derived(1))
    try:
        Derived()
    except TypeError as error:
        print(error)
"""
    command = [sys.executable, "-c", source]
    written = subprocess.run([*command, "write"], stdout=subprocess.PIPE, check=True)
    read = subprocess.run(
        [*command, "read"], input=written.stdout, stdout=subprocess.PIPE, check=True
    )

    first, second = read.stdout.decode().splitlines()
    assert first == "Derived(x=1, y=[], z=3)"
    assert "missing 1 required positional argument: 'x'" in second


def test_a_class_that_comes_home_is_itself_and_keeps_what_was_changed() -> None:
    message = a_class()
    method = message.method
    body = by_value.dumps(message(), 5, lambda _: True)
    message.count = 5

    returned = pickle.loads(body)

    assert type(returned) is message
    assert (message.count, message.method) == (5, method)


def test_an_enum_and_a_named_tuple_travel_by_value(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Named, "__module__", "__main__")  # or it would travel by name
    color = enum.Enum("color", {"RED": 1}, module="__main__")

    assert copied(color.RED) is color.RED  # type: ignore[attr-defined]
    assert copied(Named(1)) == (1,)


class Named(typing.NamedTuple):
    a: int


def test_a_class_is_whole_where_it_arrives_first_and_later_copies_change_nothing() -> None:
    message = a_class()
    reader = """
first = pickle.loads(bodies[0])
type(first).count += 1
second = pickle.loads(bodies[1])
print(type(first) is type(second), second.count, first.method())
"""

    assert printed_elsewhere(reader, message(), message()) == "True 1 1\n"


def test_sound_pass_2_instances_of_a_class_with_slots_come_back_from_where_it_travelled_to() -> (
    None
):
    @dataclasses.dataclass(slots=True)
    class Point:
        x: int
        y: int = 2

    class Below(Point):
        __slots__ = ("__weakref__", "z")

    point, below = Point(1), Below(3)
    below.z = 5
    reader = """
from launchpad.courier.codec import by_value
points = pickle.loads(bodies[0])
assert not any(hasattr(point, "__dict__") for point in points)
print(by_value.dumps(points, 5, lambda _: True).hex())
"""

    back = pickle.loads(bytes.fromhex(printed_elsewhere(reader, [point, below])))

    assert back[0] == point
    assert (type(back[1]), back[1].z, back[1]) == (Below, 5, below)


def test_a_class_whose_attributes_could_not_be_read_gets_them_the_next_time() -> None:
    message = a_class()
    message.needs = Needs()
    reader = """
import types
try:
    pickle.loads(bodies[0])
except ImportError:
    sys.modules["comes_later"] = types.ModuleType("comes_later")
print(pickle.loads(bodies[0]).needs)
"""

    assert "comes_later" in printed_elsewhere(reader, message)


class Needs:
    """Unpickles into a module that is not always there."""

    def __reduce__(self) -> Any:
        return __import__, ("comes_later",)


def test_plain_cloudpickle_is_used_if_its_classes_are_elsewhere(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(by_value, "_known_classes", dict)

    body = by_value.dumps(a_class(), 5, lambda _: True)

    assert b"launchpad.courier.codec.by_value" not in body


class Counted:
    """Counts how often it is pickled."""

    def __init__(self) -> None:
        self.count = 0

    def __reduce__(self) -> Any:
        self.count += 1
        return Counted, ()


def test_sound_28_a_class_is_pickled_once_however_often_it_is_sent() -> None:
    message = a_class()
    message.counted = Counted()

    bodies = {by_value.dumps([message(), message], 5) for _ in range(3)}

    assert len(bodies) == 1
    assert message.counted.count == 1
    assert by_value.dumps(message, 5, into_main=True).count(b"__courier") == 0


NAMESPACE = """
import functools

TEXT = INNER = HELPED = WRAPPED = "first global"

def help():
    return HELPED

def same(method):
    @functools.wraps(method)
    def call(*args):
        return method(*args)
    return call

def make():
    text = "first cell"
    class Base:
        text = "first base"
    class Message(Base):
        text = "first attribute"
        def plain(self): return TEXT
        def inner(self): return [INNER for _ in range(1)]
        def helped(self): return help()
        @same
        def wrapped(self): return WRAPPED
        @property
        def from_cell(self): return text
    def change():
        nonlocal text
        text = "second cell"
    return Base, Message, change

Base, Message, change_cell = make()
"""


@pytest.mark.parametrize(
    ("change", "now"),
    [
        ("TEXT = 'second global'", "second global"),
        ("INNER = 'second global'", "second global"),
        ("HELPED = 'second global'", "second global"),
        ("WRAPPED = 'second global'", "second global"),
        ("change_cell()", "second cell"),
        ("Base.text = 'second base'", "second base"),
        ("Message.text = 'second attribute'", "second attribute"),
        ("Message.plain = lambda self: 'second method'", "second method"),
    ],
)
def test_sound_28_a_class_that_looks_different_is_pickled_again(change: str, now: str) -> None:
    script: dict[str, Any] = {"__name__": "__main__"}
    exec(NAMESPACE, script)
    assert now.encode() not in by_value.dumps(script["Message"](), 5)

    exec(change, script)

    assert now.encode() in by_value.dumps(script["Message"](), 5)


def test_sound_28_a_class_made_of_the_attributes_of_one_that_was_sent_is_another_one() -> None:
    message = a_class()
    by_value.dumps(message(), 5)

    copy = type("Copy", message.__bases__, dict(vars(message)))

    assert type(copied(copy())) is copy


def test_sound_28_a_class_that_was_sent_can_be_pickled_by_others() -> None:
    message = a_class()
    message.kept = threading.Lock
    before = len(cloudpickle.dumps(message))

    by_value.dumps(message(), 5)

    assert len(cloudpickle.dumps(message)) < before + 100


def test_sound_28_a_class_that_takes_no_attributes_is_pickled_each_time() -> None:
    class Pair(ctypes.Structure):
        pass

    assert type(copied(Pair())) is Pair


def test_sound_28_classes_that_are_not_sent_any_more_are_forgotten() -> None:
    message = a_class()
    by_value.dumps(message(), 5)
    gone = weakref.ref(message)

    del message
    gc.collect()

    assert gone() is None


def test_sound_28_what_a_class_drags_along_is_said_once_with_its_size(unix_address) -> None:
    source = f"""{begin_source()}
import dataclasses, logging
logging.basicConfig(format="%(message)s", stream=sys.stdout)
TABLE = bytes(3 << 20)
@dataclasses.dataclass
class Step:
    a: int
    def look(self):
        return TABLE[self.a]
@dataclasses.dataclass
class Small:
    a: int
server = courier.Server(address={unix_address!r})
server.bind("m", lambda value: None)
server.start()
client = courier.Client({unix_address!r})
for i in range(3):
    client.m([Step(i)])
    client.m(Small(i))
    client.futures.m(x=Step(i)).exception()
client.m((Small(1), bytes(3 << 20)))
server.stop()
"""

    [line] = printed_by(source).splitlines()

    assert line.startswith("Step of the launching script is sent by value")
    assert "its global 'TABLE' is 3,145," in line
