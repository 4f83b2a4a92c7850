"""Defines launchpad's flags when a script imports absl's, also where that is after `import launchpad`.

absl parses the command line in `app.run`, before any function of ours is called, so the flags must be there
by then; and absl takes longer to import than all of `import launchpad`, so it is not imported for the sake of
scripts that do without it.
"""

from __future__ import annotations

import sys

TYPE_CHECKING = False  # as checkers read it; `typing` takes milliseconds
if TYPE_CHECKING:
    from collections.abc import Sequence
    from importlib.machinery import ModuleSpec
    from types import ModuleType
    from typing import Any

_ABSL, _OURS = "absl.flags", "launchpad.flags"


def install() -> None:
    """Defines them now if absl's flags have been imported, else when they are."""
    if _ABSL in sys.modules:
        __import__(_OURS)
    else:
        sys.meta_path.insert(0, _Finder())


class _Finder:
    """Finds absl's flags as the finders behind it do, and takes itself out when these have been imported."""

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if name != _ABSL:
            return None
        for finder in sys.meta_path:
            spec = None if finder is self else finder.find_spec(name, path, target)
            if spec is not None:
                if spec.loader is not None:
                    loader: Any = _Loader(self, spec.loader)
                    spec.loader = loader
                return spec
        return None


class _Loader:
    """Loads the module as the loader does that was found for it, which then is the module's loader."""

    def __init__(self, finder: _Finder, loader: Any) -> None:
        self._finder, self._loader = finder, loader

    def create_module(self, spec: ModuleSpec) -> Any:
        return self._loader.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        assert module.__spec__ is not None
        module.__spec__.loader = module.__loader__ = self._loader
        self._loader.exec_module(module)
        if self._finder in sys.meta_path:
            sys.meta_path.remove(self._finder)
            __import__(_OURS)
