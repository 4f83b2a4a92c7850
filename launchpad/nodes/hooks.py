"""The methods of a node's object that a worker calls by their names.

How it keeps what it knows over a restart, or to the next launch:

    save()             returns None, and has saved itself: into `lp.current().state_dir`, say
                       returns anything else, which is saved for it
    restore()          loads what it has saved itself
    restore(saved)     is given what its `save()` has returned, if it has returned anything
    restore(saved=None)    both: what was returned, else nothing

How it lets go of what it holds, when an attempt has ended in good order; the first of these that there is:

    close()
    __aexit__, __exit__    as at the end of a `with` block without an exception; not a lock's

Methods of these names that want other arguments are not meant for us: a model's `save(path)`.
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
    """Lets the object save itself, or saves what it gives."""
    if (hook := _hook(built, "save")) is None or not _takes(hook):
        return
    saved = user_code.until_done(hook, loop)()
    if saved is not None:
        with context.current().state.saved_states(of_object=True) as states:
            states.save(saved, None, _KEEP)


def restore(built: object, loop: EventLoop) -> None:
    """Lets the object restore itself, with what it has given to be saved if it wants that."""
    if (hook := _hook(built, "restore")) is None:
        return
    found = None
    if _takes(hook, None):
        with context.current().state.saved_states(of_object=True) as states:
            found = states.load()
    if found is not None:
        user_code.until_done(functools.partial(hook, found[1]), loop)()
    elif _takes(hook):
        user_code.until_done(hook, loop)()


def find_close(built: object) -> tuple[str, Callable[[], object]] | None:
    """Returns the name of what closes the object, and what calls it; None where there is nothing.

    Of the class, since clients and the like answer to any name.
    """
    kind = type(built)
    if hasattr(kind, CLOSE):
        hook = _hook(built, CLOSE)
        if hook is not None and _takes(hook):
            return CLOSE, hook
    if hasattr(kind, "acquire"):  # its `__exit__` gives back what nothing has acquired
        return None
    for name in ("__aexit__", "__exit__"):
        if hasattr(kind, name):
            return name, functools.partial(getattr(built, name), None, None, None)
    return None


class PeriodicSave:
    """A thread that lets an object save itself every so often. What it raises is logged; it goes on."""

    def __init__(self, save: Callable[[], None], every_s: float) -> None:
        self._save = save
        self._every_s = every_s
        self._has_ended = threading.Event()
        context.inherit()
        self._thread = OwnThread(target=self._run, name="launchpad-save")
        self._thread.start()

    def end(self) -> None:
        """Begins no other save, and waits for one that is under way."""
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
