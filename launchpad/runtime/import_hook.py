"""Hooks that call a function when a module is imported, now or later.

They set up modules that take too long to import for programs that don't use them: absl's flags, which absl
parses before it calls any function of ours, and the seeds of numpy's and torch's random numbers. They also
handle flags in `sys.argv` that a parser of the module would refuse.
"""

from __future__ import annotations

import sys

# Type checkers take this for `typing.TYPE_CHECKING`. Importing `typing` takes milliseconds.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from importlib.machinery import ModuleSpec
    from types import ModuleType
    from typing import Any


def when_imported(name: str, then: Callable[[ModuleType], object]) -> None:
    """Call `then(module)` when the module has been imported; at once if it has been already."""
    module = sys.modules.get(name)
    if module is not None:
        then(module)
    else:
        sys.meta_path.insert(0, _Finder(name, then))


class _Finder:
    """A finder for one module: it uses the finders behind it, and removes itself after the import."""

    def __init__(self, name: str, then: Callable[[ModuleType], object]) -> None:
        self._name = name
        self._then = then

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if name != self._name:
            return None
        # Use only the finders behind this one: another hook for the same module would call this one again,
        # without end.
        other_finders = (
            sys.meta_path[sys.meta_path.index(self) + 1 :] if self in sys.meta_path else []
        )
        for finder in other_finders:
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
    """A loader that wraps the loader found for the module, puts it back, and reports the import."""

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
