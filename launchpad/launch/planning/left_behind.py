"""A note about what a script has set up only for itself, so that workers that are processes lack it.

A changed variable of a module, or an entry in a registry, mostly looks like any other value. This file finds
values that can be recognised as the script's, such as a hook that the script defines. The launch lists these
values, unless a `setup=` shows that the user knows.
"""

from __future__ import annotations

import copyreg
import logging
import signal
import sys
import threading
from collections.abc import Iterator
from typing import Any

_OF_ITS_OWN = {signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGCHLD}
"""Signals that a script handles for itself. A worker has its own ways to stop, and to watch children."""


def note() -> str:
    """Return the note about this script; empty if there is nothing to say."""
    listed = ", ".join(dict.fromkeys(_noticed()))
    if not listed:
        return ""
    return (
        f"set up by the script only: {listed}. Workers that are processes do not have it;"
        " lp.Program(…, setup=f) has f called in each of them first."
    )


def _noticed() -> Iterator[str]:
    gymnasium: Any = sys.modules.get("gymnasium")
    for name, spec in getattr(gymnasium, "registry", {}).items():
        entry_point = getattr(spec, "entry_point", None)
        is_named = isinstance(entry_point, str) and entry_point.startswith("__main__:")
        if is_named or _is_of_script(entry_point):
            yield f"gymnasium.register({name!r})"
    for kind in copyreg.dispatch_table:
        if _is_of_script(kind):
            yield f"copyreg.pickle({kind.__name__})"
    for number in signal.valid_signals() - _OF_ITS_OWN:
        if _is_of_script(signal.getsignal(number)):
            yield f"the handler of {getattr(number, 'name', number)}"
    values = {
        "sys.stdout": (sys.stdout,),
        "sys.stderr": (sys.stderr,),
        "sys.unraisablehook": (sys.unraisablehook,),
        "threading.excepthook": (threading.excepthook,),
        "sys.meta_path": sys.meta_path,
        "sys.path_hooks": sys.path_hooks,
        "logging.setLoggerClass": (logging.getLoggerClass(),),
        "logging.setLogRecordFactory": (logging.getLogRecordFactory(),),
    }
    for name, ours in values.items():
        if any(map(_is_of_script, ours)):
            yield name
    events: Any = sys.modules.get("asyncio.events")
    policy = getattr(events, "_event_loop_policy", None)
    if policy is not None and not type(policy).__module__.startswith("asyncio."):
        yield "asyncio.set_event_loop_policy"


def _is_of_script(value: object) -> bool:
    """Return True for a function or class of the script, and for an object of such a class."""
    named = value if hasattr(value, "__qualname__") else type(value)
    return getattr(named, "__module__", "") == "__main__"
