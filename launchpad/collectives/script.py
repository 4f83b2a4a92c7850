"""Script: a script for torchrun, which each rank of a group runs as its `__main__`."""

from __future__ import annotations

import importlib.util
import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import CodeType
from typing import Any

from launchpad.collectives.collective import Collective
from launchpad.errors import DefinitionError, DoNotRestart

_WRONG_ARGUMENTS = 2
"""The exit code of argparse, absl and click for a wrong command line."""


@dataclass(frozen=True, repr=False)
class Script:
    """A function of `lp.ranks` that runs a script in the rank's process, as torchrun does.

    The text of a file travels with this object, so the file need not be on the rank's host. A module is
    imported there.

    Attributes:
        name: The file or the module, as on the command line.
        words: The words that follow it there.
        path: The absolute path of the file here; empty for a module.
        text: The file's text; empty for a module.
    """

    name: str
    words: tuple[str, ...]
    path: str = ""
    text: bytes = b""

    @classmethod
    def of_file(cls, name: str, words: Sequence[str]) -> Script:
        """Read a file.

        Raises:
            DefinitionError: it cannot be read, or is not Python.
        """
        try:
            text = Path(name).read_bytes()
            compile(text, name, "exec", dont_inherit=True)
        except OSError as error:
            raise DefinitionError(f"the script cannot be read: {error}") from None
        except (SyntaxError, ValueError) as error:
            raise DefinitionError(f"{name} is not a script of this Python: {error}") from None
        return cls(name, tuple(words), os.path.abspath(name), text)

    @classmethod
    def of_module(cls, name: str, words: Sequence[str]) -> Script:
        """Find a module, or the `__main__` of a package, without importing it.

        Raises:
            DefinitionError: there is no such module.
        """
        try:
            _code_of(name)
        except ImportError as error:
            raise DefinitionError(f"there is no module to run: {error}") from None
        return cls(name, tuple(words))

    @property
    def __name__(self) -> str:
        """The name of the program that runs it."""
        return Path(self.name).stem if self.path else self.name.rpartition(".")[2]

    def __repr__(self) -> str:
        return self.name

    def __call__(self, group: Collective) -> None:
        """Run the script to its end.

        Raises:
            DoNotRestart: it refused its arguments.
        """
        group.init_torch(default_group=False)
        # This is the module that launchpad has made for the worker, so that classes of the script can be
        # pickled, and processes that multiprocessing starts don't run the script once more.
        main: dict[str, Any] = sys.modules["__main__"].__dict__
        if self.path:
            path = _path_here(self.path)
            code = compile(self.text, path, "exec", dont_inherit=True)
            main.update(__file__=path, __package__=None, __cached__=None)
            argv_0 = self.name
            folder = os.path.dirname(path)
            if sys.path[0] != folder:
                sys.path.insert(0, folder)
        else:
            spec, code = _code_of(self.name)
            argv_0 = str(spec.origin)
            main.update(
                __file__=argv_0, __package__=spec.parent, __spec__=spec, __loader__=spec.loader
            )
        sys.argv[:] = [argv_0, *self.words]
        try:
            exec(code, main)
        except SystemExit as end:
            # The other ranks must not take this for a failure.
            if end.code in (None, 0):
                return
            if end.code == _WRONG_ARGUMENTS:
                error = DoNotRestart("sys.exit(2): the script refuses its arguments")
                raise error.with_traceback(end.__traceback__) from None
            raise


def _code_of(name: str) -> tuple[ModuleSpec, CodeType]:
    """Return a module's spec and code; for a package, those of its `__main__`.

    Raises:
        ImportError: there is no such module, or it is not written in Python.
    """
    try:
        spec = importlib.util.find_spec(name)
    except ValueError as error:  # the name is empty, or that of a module which has no spec
        raise ImportError(f"{name!r}: {error}") from None
    if spec is not None and spec.submodule_search_locations is not None:
        return _code_of(f"{name}.__main__")
    loader: Any = None if spec is None else spec.loader
    code = loader.get_code(name) if hasattr(loader, "get_code") else None
    if spec is None or code is None:
        raise ImportError(f"no module named {name!r}, or no code of it")
    return spec, code


def _path_here(path: str) -> str:
    """Return the path of the script on this host: where it was, or among the files that were sent here."""
    places = (path, *(os.path.join(entry, os.path.basename(path)) for entry in sys.path))
    return next((place for place in places if os.path.isfile(place)), path)
