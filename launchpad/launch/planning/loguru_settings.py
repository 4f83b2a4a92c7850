"""Settings that a worker takes over from the script's loguru logger, when it imports loguru.

    levels, `configure(extra=…, patcher=…)`, `enable` and `disable`
    handlers        those to stdout, stderr (in a worker, its log), a file or a function, with format, filter
                    and level, also with `enqueue=True`: then each process writes for itself

Handlers of other kinds stay behind. So do handlers to files that loguru renames, removes or packs, because
several processes must not do that. If no handler is left, the worker keeps loguru's own handler, to stderr.

loguru offers no way to ask a handler how it was made. So this file reads private attributes, those of loguru
0.7. If another version has other attributes, the worker's logger stays as loguru makes it.
"""

from __future__ import annotations

import pickle
import sys
from types import ModuleType
from typing import Any

from launchpad.courier.codec import by_value
from launchpad.courier.light_dataclass import dataclass
from launchpad.runtime import import_hook

_OF_CORE = (
    "levels",
    "levels_ansi_codes",
    "levels_lookup",
    "extra",
    "patcher",
    "enabled",
    "activation_list",
    "activation_none",
)
_NO_QUEUE = {
    "_enqueue": False,
    "_queue": None,
    "_confirmation_event": None,
    "_confirmation_lock": None,
    "_multiprocessing_context": None,
}


@dataclass(frozen=True)
class LoguruSettings:
    """Settings of the logger.

    Attributes:
        core: The attributes that all loggers of loguru share, pickled.
        handlers: The state of each handler, pickled.
    """

    core: bytes
    handlers: tuple[bytes, ...]

    @classmethod
    def here(cls) -> LoguruSettings | None:
        """Read the settings; None if loguru has not been imported, or cannot be read."""
        loguru: Any = sys.modules.get("loguru")
        if loguru is None:
            return None
        try:
            core = loguru.logger._core
            common = {name: getattr(core, name) for name in _OF_CORE}
            handlers = [_described(handler) for handler in core.handlers.values()]
            packed = by_value.dumps(common, 5, into_main=True)
        except Exception:  # loguru is another version, or `extra` cannot be pickled
            return None
        return cls(packed, tuple(handler for handler in handlers if handler is not None))

    def apply(self) -> None:
        """Set up this process's logger, when loguru is imported."""
        import_hook.when_imported("loguru", self._apply_to)

    def _apply_to(self, loguru: ModuleType) -> None:
        try:
            core: Any = loguru.logger._core
            vars(core).update(pickle.loads(self.core))
            handlers = [_made(pickle.loads(handler), core) for handler in self.handlers]
            if handlers:
                loguru.logger.remove()
            for number, handler in enumerate(handlers, core.handlers_count):
                handler._id = number
                core.handlers = {**core.handlers, number: handler}
                core.handlers_count = number + 1
                core.min_level = min(core.min_level, handler.levelno)
        except Exception as error:  # also any error of a user's patcher or sink
            print(
                "loguru's logger is not set up here as it is in the script:"
                f" {type(error).__name__}: {error}",
                file=sys.stderr,
            )


def _described(handler: Any) -> bytes | None:
    """Return a handler's state, pickled; None if that fails, or if only the script may write there."""
    sink = handler._sink
    if type(sink).__name__ == "FileSink":
        changes = (sink._rotation_function, sink._retention_function, sink._compression_function)
        if any(change is not None for change in changes):
            return None
        # Have the file opened when the first line is written, as with `delay=True`.
        without_file = {"_file": None, "_file_path": None, "_kwargs": {**sink._kwargs, "mode": "a"}}
        sink = type(sink), {**vars(sink), **without_file}
    else:
        sink = type(sink), vars(sink)
    try:
        state = {**handler.__getstate__(), **_NO_QUEUE, "_sink": sink}
        return by_value.dumps((type(handler), state), 5, into_main=True)
    except Exception:  # a sink may hold what cannot be pickled, such as a lock
        return None


def _made(description: tuple[Any, dict[str, Any]], core: Any) -> Any:
    """Make the handler of this description in this process."""
    kind, state = description
    kind_of_sink, state_of_sink = state["_sink"]
    sink = object.__new__(kind_of_sink)
    vars(sink).update(state_of_sink)
    handler = object.__new__(kind)
    handler.__setstate__({**state, "_sink": sink, "_levels_ansi_codes": core.levels_ansi_codes})
    return handler
