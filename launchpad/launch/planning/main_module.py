"""The `__main__` of a worker's process: the part of the script's `__main__` that the worker uses.

    launcher   MainModule.of_script()   the script's name, and the source of what it defines
    worker     install()                an empty `__main__` with that name, for courier's by_value to fill
    processes that multiprocessing starts in it
               multiprocessing_main     an empty `__main__` as well: the script is not run again

In the worker, objects that were sent from the script can be pickled by name. A process that multiprocessing
starts with spawn or forkserver has none of these objects. So the pickler for this process sends everything of
`__main__` by value.
"""

from __future__ import annotations

import linecache
import pickle
import sys
import types
from collections.abc import Mapping
from dataclasses import field
from importlib.machinery import ModuleSpec
from multiprocessing.reduction import ForkingPickler
from typing import Any

from launchpad.courier.codec import by_value
from launchpad.courier.light_dataclass import dataclass

CHILD_MAIN = "launchpad.launch.planning.multiprocessing_main"


@dataclass(frozen=True)
class MainModule:
    """The script's `__main__` as workers know it, apart from the objects that they are sent.

    Attributes:
        attributes: Its `__file__`, `__package__` and `__doc__`, as far as it has them.
        sources: File → its text, for the script's file and for other files that define functions of
            `__main__`, such as the cells of a notebook.
    """

    attributes: Mapping[str, Any] = field(default_factory=dict)
    sources: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def of_script(cls) -> MainModule:
        main = vars(sys.modules["__main__"])
        names = ("__file__", "__package__", "__doc__")
        members = [
            member
            for value in list(main.values())
            if getattr(value, "__module__", "") == "__main__"
            for member in (value, *(vars(value).values() if isinstance(value, type) else ()))
        ]
        files = {f.__code__.co_filename for f in members if isinstance(f, types.FunctionType)}
        if isinstance(main.get("__file__"), str):
            files.add(main["__file__"])
        attributes = {name: main[name] for name in names if isinstance(main.get(name), str)}
        texts = {file: "".join(linecache.getlines(file, main)) for file in files}
        return cls(attributes, {file: text for file, text in texts.items() if text})

    def install(self) -> None:
        """Make an empty `__main__` with these attributes, and let `inspect` find the sources."""
        main = types.ModuleType("__main__")
        main.__dict__.update(self.attributes, **{by_value.FILLED: True})
        main.__spec__ = ModuleSpec(CHILD_MAIN, None)
        sys.modules["__main__"] = main
        for file, text in self.sources.items():
            linecache.cache[file] = (len(text), None, text.splitlines(keepends=True), file)
        send_by_value()


def send_by_value() -> None:
    """Make multiprocessing send classes and functions of `__main__` by value, in this process."""
    setattr(ForkingPickler, "reducer_override", _reduced)  # noqa: B010  a method of a class that has none


def _reduced(pickler: ForkingPickler, obj: Any) -> Any:
    if (
        isinstance(obj, type | types.FunctionType)
        and obj.__module__ == "__main__"
        and "<" not in obj.__qualname__
    ):
        return pickle.loads, (by_value.dumps(obj, 5, into_main=True),)
    return NotImplemented
