"""A trial run of a method: does it do what may wait for others?

How long it takes does not tell: `queue.get()` is quick until the queue is empty. But even then it has
entered a condition, where another method only looks something up. So the first runs of a method are
watched, by a profile function that is told of every call in this thread.

What a method does not do in its first runs, and what waits inside of an extension, stays unseen.
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable
from types import CodeType, FrameType
from typing import Any, TypeVar

from launchpad.courier.servers.methods import Methods

R = TypeVar("R")

_COURIER, _IMPORT = os.path.dirname(os.path.dirname(__file__)) + os.sep, "<frozen importlib"
_ANY = ""
_MAX_DEPTH = 100  # CPython 3.11 mistakes a RecursionError in a thread that is watched

# Functions in C that may wait: the module that their object or they themselves come from, and the name.
_WAITING = {
    ("_multiprocessing", _ANY),
    ("_queue", "get"),
    ("_socket", _ANY),
    ("_ssl", _ANY),
    ("_thread", "acquire"),
    ("posix", "read"),
    ("posix", "waitpid"),
    ("select", _ANY),
    ("socket", _ANY),
    ("ssl", _ANY),
    ("time", "sleep"),
}


def _code(function: Any) -> CodeType:
    code: CodeType = function.__code__
    return code


# And in Python.
_CONDITION = _code(threading.Condition.__enter__)
_SEMAPHORE = _code(threading.Semaphore.acquire)

# Who may call them: to set an event enters a condition, too, and waits for nobody.
_HARMLESS = {
    _code(threading.Event.set),
    _code(threading.Event.clear),
    _code(getattr(threading.Condition, "_is_owned")),  # noqa: B009  no attribute for type checkers
}
_ANSWER = _code(Methods.answer)  # calls what is served, which may be a function in C


class Trial:
    """One run, watched.

    Example:
        trial = Trial()
        reply = trial.run(methods.answer, b"get", body, ())
        if not trial.may_wait: ...

    Attributes:
        is_valid: it could be watched; not where the thread is being profiled already.
        may_wait: it has called something that waits, if not now then another time.
    """

    def __init__(self) -> None:
        self.is_valid = sys.getprofile() is None
        self.may_wait = False
        self._depth = 0

    def run(self, fn: Callable[..., R], *args: Any) -> R:
        """`fn(*args)`."""
        if not self.is_valid:
            return fn(*args)
        sys.setprofile(self._look)
        try:
            return fn(*args)
        finally:
            sys.setprofile(None)

    def _look(self, frame: FrameType, event: str, called: Any) -> None:
        if event == "c_call":
            self.may_wait |= _is_waiting(called) and not _is_harmless(frame)
        elif event == "return":
            self._depth -= 1
        elif event == "call":
            self._depth += 1
            if frame.f_code in (_CONDITION, _SEMAPHORE):
                self.may_wait |= not _is_harmless(frame.f_back)
            if self._depth > _MAX_DEPTH:
                self.may_wait = True  # whoever goes that deep does not need to be quick
                sys.setprofile(None)


def _is_waiting(function: Any) -> bool:
    """Whether a function in C may wait."""
    try:
        owner = getattr(function, "__self__", None)
        module = function.__module__ or type(owner).__module__
        return (module, function.__name__) in _WAITING or (module, _ANY) in _WAITING
    except Exception:  # an object of the user's, with attributes of its own making
        return False


def _is_harmless(caller: FrameType | None) -> bool:
    """Whether what waits as a rule does not, as it is called here.

    Neither does what is imported now, and will not be again, nor courier itself, for calls that the
    method makes: the stop of a server ends those.
    """
    if caller is not None and caller.f_code in _HARMLESS:
        return True
    while caller is not None and caller.f_code is not _ANSWER:
        if caller.f_code.co_filename.startswith((_COURIER, _IMPORT)):
            return True
        caller = caller.f_back
    return False
