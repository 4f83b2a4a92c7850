"""Calls a function when a module has been imported, also where that is later than now.

For what has to be set in a module before the user's code uses it, and takes too long to be imported for those
who do without it: absl's flags, which it parses before any function of ours is called; the seeds of numpy's
and torch's random numbers. And for flags in `sys.argv` that a parser of that module would refuse.
"""

from __future__ import annotations

import sys

TYPE_CHECKING = False  # as checkers read it; `typing` takes milliseconds
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from importlib.machinery import ModuleSpec
    from types import ModuleType
    from typing import Any


def when_imported(name: str, then: Callable[[ModuleType], object]) -> None:
    """Calls `then(module)` when it has been imported: now, if that has been done."""
    module = sys.modules.get(name)
    if module is not None:
        then(module)
    else:
        sys.meta_path.insert(0, _Finder(name, then))


class _Finder:
    """Finds one module as the finders behind it do, and takes itself out when it has been imported."""

    def __init__(self, name: str, then: Callable[[ModuleType], object]) -> None:
        self._name = name
        self._then = then

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if name != self._name:
            return None
        # Only those behind: another hook for the same module would ask this one again, without end.
        behind = sys.meta_path[sys.meta_path.index(self) + 1 :] if self in sys.meta_path else []
        for finder in behind:
            spec = finder.find_spec(name, path, target)
            if spec is not None:
                if spec.loader is not None:
                    loader: Any = _Loader(self, spec.loader)
                    spec.loader = loader
                return spec
        return None

    def has_imported(self, module: ModuleType) -> None:
        if self in sys.meta_path:
            sys.meta_path.remove(self)
            self._then(module)


class _Loader:
    """Loads the module as the loader does that was found for it, which then is the module's loader."""

    def __init__(self, finder: _Finder, loader: Any) -> None:
        self._finder = finder
        self._loader = loader

    def create_module(self, spec: ModuleSpec) -> Any:
        return self._loader.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        assert module.__spec__ is not None
        module.__spec__.loader = module.__loader__ = self._loader
        self._loader.exec_module(module)
        self._finder.has_imported(module)
