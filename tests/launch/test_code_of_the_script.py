"""Code of the script that cannot travel is named on one screen: what it is, what uses it, and what to do."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.helpers import scripts

ONE_SCREEN = 25

CANNOT_BE_SENT = """
import sys, threading
import launchpad as lp

lock = threading.Lock()
rows = (row for row in range(3))

class Config:
    def __init__(self):
        self.parts = {"a": [lock]}

config = Config()

def helper():
    return config

def deep():
    return helper()

def locked():
    with lock:
        return 1

def generator():
    return list(rows)

class Locked:
    guard = threading.Lock()
    def run(self):
        return self.guard

class Indirect:
    @property
    def both(self):
        return lock
    def run(self):
        return self.both

def made():
    inner = threading.Lock()
    return lambda: inner

class Refuses:
    def __getstate__(self):
        raise RuntimeError("it has no state")

refuses = Refuses()

def state():
    return refuses

closure = made()
node = eval(sys.argv[1])
program = lp.Program("script", setup=node if "setup" in sys.argv else None)
kind = lp.PyClassNode if isinstance(node, type) else lp.PyNode
program.add_node(kind(print if "setup" in sys.argv else node), label="worker")
lp.run(program, "local_mp")
"""


@pytest.mark.parametrize(
    ("case", "said"),
    [
        (
            "deep",
            "because of worker.constructor.<global helper>.<global config>.parts['a'][0], a _thread.lock:"
            " TypeError: cannot pickle '_thread.lock' object. helper is of the script, so it travels by"
            " value, with its global config.",
        ),
        ("locked", "locked is of the script, so it travels by value, with its global lock."),
        ("generator", "generator is of the script, so it travels by value, with its global rows."),
        ("Locked", "Locked is of the script, so it travels by value, with its attribute guard."),
        (
            "Indirect",
            "Indirect.both is of the script, so it travels by value, with its global lock.",
        ),
        ("closure", "<lambda> is of the script, so it travels by value, with its variable inner."),
        ("state", "state is of the script, so it travels by value, with its global refuses."),
        ("lambda: Locked().run()", "so it travels by value, with its attribute guard."),
        ("locked setup", "setup= of program 'script', locked, cannot be sent to its workers"),
    ],
)
def test_what_cannot_be_sent_is_named_with_the_code_that_uses_it(
    tmp_path: Path, case: str, said: str
) -> None:
    arguments = case.split() if case.endswith("setup") else [case]

    done = scripts.run(scripts.write(tmp_path, CANNOT_BE_SENT), *arguments)

    last = done.stderr.splitlines()[-1]
    assert said in last
    assert "into a module of its own, which workers import" in last
    assert len(done.stderr.splitlines()) <= ONE_SCREEN, done.stderr
    assert "During handling" not in done.stderr
    assert "direct cause" not in done.stderr or case == "state"
    assert ("in __getstate__" in done.stderr) is (case == "state")


CANNOT_BE_MADE = """
import builtins, importlib, sys
import launchpad as lp

class Made:
    def __init__(self, *how):
        self.how = how
    def __reduce__(self):
        return self.how

class Restored:
    def __init__(self):
        self.a = 1
    def __setstate__(self, state):
        raise ValueError("cannot be restored")

class Registered(type):
    def __new__(cls, name, bases, namespace):
        return names[name](cls, name, bases, namespace)

names = {"Script": super(Registered, Registered).__new__}

class Script(metaclass=Registered):
    def run(self):
        pass

del names["Script"]

lacks_name = Made(getattr, (builtins, "no_such_name"))
lacks_module = Made(importlib.import_module, ("no_such_module",))
lacks_key = Made(eval, ("{}['key']",))
restored = Restored()

class Holder:
    kept = lacks_name
    def run(self):
        return self.kept

def name():
    return lacks_name

def module():
    return lacks_module

def middle():
    return lacks_key

def key():
    return middle()

def state():
    return restored

def closure():
    inside = lacks_key
    def inner():
        return inside
    return inner

inner = closure()
node = eval(sys.argv[1])
program = lp.Program("script", setup=node if "setup" in sys.argv else None)
if isinstance(node, Restored):
    program.add_node(lp.PyNode(print, node), label="worker")
else:
    kind = lp.PyClassNode if isinstance(node, type) else lp.PyNode
    program.add_node(kind(print if "setup" in sys.argv else node), label="worker")
lp.run(program, "local_mp", terminal="output_to_files")
"""


@pytest.mark.parametrize(
    ("case", "said"),
    [
        ("name", "what getattr returns, for the global lacks_name of name"),
        ("module", "what importlib.import_module returns, for the global lacks_module of module"),
        ("key", "what eval returns, for the global lacks_key of middle"),
        ("state", "an object of Restored, for the global restored of state"),
        ("Holder", "what getattr returns, for the attribute kept of Holder"),
        ("inner", "what eval returns, for closure.<locals>.inner"),
        ("lambda: Script().run()", "the class Script, for the global Script of <lambda>"),
        ("key setup", "what eval returns, for the global lacks_key of middle"),
    ],
)
def test_what_cannot_be_made_in_a_worker_is_named_with_the_code_that_uses_it(
    tmp_path: Path, case: str, said: str
) -> None:
    arguments = case.split() if case.endswith("setup") else [case]

    done = scripts.run(scripts.write(tmp_path, CANNOT_BE_MADE), *arguments)

    assert f"raised while the worker made {said}, which is of the script." in done.stderr
    assert "travels by value, with all that it uses" in done.stderr
    assert "into a module of its own, which workers import" in done.stderr
    assert len(done.stderr.splitlines()) <= ONE_SCREEN, done.stderr
    for file in ("payload.py", "cloudpickle.py", "worker.py"):
        assert file not in done.stderr


def test_an_argument_that_cannot_be_made_in_a_worker_is_named(tmp_path: Path) -> None:
    done = scripts.run(scripts.write(tmp_path, CANNOT_BE_MADE), "restored")

    assert (
        "raised while the worker made an object of Restored, which the node is given" in done.stderr
    )
    assert "in __setstate__" in done.stderr
    assert len(done.stderr.splitlines()) <= ONE_SCREEN, done.stderr
