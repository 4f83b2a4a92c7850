"""The methods of a node's object that a worker calls by their names.

These methods keep the object's state over a restart, or until the next launch:

    save()             returns None if it saved the state itself, for example in `lp.current().state_dir`;
                       otherwise returns the state, and the worker saves it
    restore()          loads what the object saved itself
    restore(saved)     gets what `save()` returned, if it returned anything
    restore(saved=None)    covers both cases: gets what `save()` returned, or no argument

These methods release what the object holds when an attempt ends cleanly. The worker calls the first of them
that the object has:

    close()
    __aexit__, __exit__    called as at the end of a `with` block without an exception; not called on a lock

The worker ignores methods of these names that take other arguments, such as a model's `save(path)`.
"""

from __future__ import annotations

import functools
import inspect
import logging
import threading
from collections.abc import Callable
from typing import Any

from launchpad.courier.own_threads import OwnThread
from launchpad.courier.server.event_loop import EventLoop
from launchpad.errors import Stopped
from launchpad.runtime import context, user_code

CLOSE = "close"

_KEEP = 2
_END_S = 60.0


def save(built: object, loop: EventLoop) -> None:
    """Call the object's `save()`, and save what it returns."""
    hook = _hook(built, "save")
    if hook is None or not _takes(hook):
        return
    saved = user_code.until_done(hook, loop)()
    if saved is not None:
        with context.current().state.saved_states(of_object=True) as states:
            states.save(saved, None, _KEEP)


def restore(built: object, loop: EventLoop) -> None:
    """Call the object's `restore()`. If it takes an argument, it gets what `save()` returned."""
    hook = _hook(built, "restore")
    if hook is None:
        return
    saved_state = None
    if _takes(hook, None):
        with context.current().state.saved_states(of_object=True) as states:
            saved_state = states.load()
    if saved_state is not None:
        user_code.until_done(functools.partial(hook, saved_state[1]), loop)()
    elif _takes(hook):
        user_code.until_done(hook, loop)()


def find_close(built: object) -> tuple[str, Callable[[], object]] | None:
    """Return the name of the object's closing method, and a function that calls it.

    Return None if the object has no closing method. Only methods of the class count, because some objects,
    such as clients, seem to have a method of any name.
    """
    kind = type(built)
    if hasattr(kind, CLOSE):
        hook = _hook(built, CLOSE)
        if hook is not None and _takes(hook):
            return CLOSE, hook
    # A lock's `__exit__` would release a lock that nothing has acquired.
    if hasattr(kind, "acquire"):
        return None
    for name in ("__aexit__", "__exit__"):
        if hasattr(kind, name):
            return name, functools.partial(getattr(built, name), None, None, None)
    return None


class PeriodicSave:
    """A thread that lets an object save itself at intervals. It logs errors of saves, and goes on."""

    def __init__(self, save: Callable[[], None], every_s: float) -> None:
        self._save = save
        self._every_s = every_s
        self._has_ended = threading.Event()
        context.inherit()
        self._thread = OwnThread(target=self._run, name="launchpad-save")
        self._thread.start()

    def end(self) -> None:
        """Begin no more saves, and wait for the running one."""
        self._has_ended.set()
        if self._thread is not threading.current_thread():
            self._thread.join(_END_S)

    def _run(self) -> None:
        while not self._has_ended.wait(self._every_s):
            try:
                self._save()
            except Stopped:
                return
            except Exception:
                name = context.current().name
                logging.getLogger("launchpad.state").exception("%s could not save itself", name)


def _hook(built: object, name: str) -> Any:
    hook = getattr(built, name, None)
    is_stream = inspect.isgeneratorfunction(hook) or inspect.isasyncgenfunction(hook)
    return hook if callable(hook) and not is_stream else None


def _takes(hook: Any, *arguments: object) -> bool:
    try:
        inspect.signature(hook).bind(*arguments)
    except (TypeError, ValueError):
        return False
    return True
