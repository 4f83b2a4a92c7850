"""The end of a script on Python 3.12.0 and 3.12.1, which is too late for everything.

These two forbid new threads as soon as the last line has run, while programs in threads need them
(python/cpython#113964, mended in 3.12.2). So there, and only there, the end of the main module's code is
watched for through `sys.monitoring` (PEP 669), and waited at: the interpreter is whole then.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from types import CodeType
from typing import Any

IS_TOO_LATE = (3, 12, 0) <= sys.version_info < (3, 12, 2)
_TOOL = 3  # none of those that debuggers, coverage and profilers have


def call_before(at_end: Callable[[BaseException | None], None]) -> None:
    """Calls `at_end` in the main thread when the script's code ends, with what ended it.

    Does nothing where there is no script: in an interactive session, under a test runner's own main.
    """
    script = _script_code()
    if script is None or hasattr(sys, "ps1"):
        return
    monitoring: Any = sys.monitoring  # type: ignore[attr-defined,unused-ignore]
    returns, unwinds = monitoring.events.PY_RETURN, monitoring.events.PY_UNWIND

    def on_end(code: CodeType, offset: int, result: object) -> None:
        if code is script:
            at_end(result if isinstance(result, BaseException) else None)

    monitoring.use_tool_id(_TOOL, "launchpad")
    monitoring.register_callback(_TOOL, returns, on_end)
    monitoring.register_callback(_TOOL, unwinds, on_end)
    monitoring.set_local_events(_TOOL, script, returns)
    monitoring.set_events(_TOOL, unwinds)


def _script_code() -> CodeType | None:
    """The code of the main module, if the main thread is in it."""
    found = None
    frame = sys._current_frames().get(threading.main_thread().ident or 0)
    while frame is not None:
        if frame.f_globals.get("__name__") == "__main__" and frame.f_code.co_name == "<module>":
            found = frame.f_code
        frame = frame.f_back
    return found
