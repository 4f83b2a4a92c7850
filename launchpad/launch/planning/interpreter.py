"""Settings that a worker's interpreter takes over from the launching script's, on whatever host.

    hash seed           PYTHONHASHSEED of the script, else a random one; the same in all workers of a run
    flags               -O, -X dev, -W and the like
    settings            of modules, such as `sys.setrecursionlimit`: see module_settings.py
    warnings' filters   a filter for a package's category applies once a worker imports the package
    logging             see logging_settings.py, and loguru_settings.py
    coverage            see coverage_settings.py
    debugger            see debugpy_settings.py
    authkey             of multiprocessing, with which its managers and listeners recognise each other

The first two take effect when an interpreter starts. The others are set before the user's code is imported.
"""

from __future__ import annotations

import builtins
import functools
import os
import sys
import warnings
from collections.abc import Iterator
from dataclasses import field
from types import ModuleType
from typing import Any, cast

from launchpad.courier.light_dataclass import dataclass
from launchpad.errors import LaunchError
from launchpad.launch.planning import module_settings
from launchpad.launch.planning.coverage_settings import CoverageSettings
from launchpad.launch.planning.debugpy_settings import DebugpySettings
from launchpad.launch.planning.logging_settings import LoggingSettings
from launchpad.launch.planning.loguru_settings import LoguruSettings
from launchpad.runtime import import_hook

HASH_SEED = "PYTHONHASHSEED"


@dataclass(frozen=True)
class WarningFilter:
    """An entry of `warnings.filters`."""

    action: Any
    message: str
    category_module: str
    category: str
    module: str
    line: int

    def apply(self, category_module: ModuleType, *, is_last: bool = False) -> None:
        """Add the filter in front of the others, or after them. Its category's module must be imported."""
        category = _class_in(category_module, self.category)
        if category is None:  # another version of its package is imported here
            return
        warnings.filterwarnings(
            self.action,
            self.message,
            cast("type[Warning]", category),
            self.module,
            self.line,
            append=is_last,
        )


@dataclass(frozen=True)
class InterpreterSettings:
    """An interpreter's settings as plain data, for another process.

    Attributes:
        warning_filters: The entries of `warnings.filters`. A pattern is kept as text, a category as its name
            and the name of its module.
        loguru: None if the script does not use loguru.
        coverage: None if the script is not measured.
        debugpy: None if debugpy does not debug the script.
        authkey: Empty if the script has not imported multiprocessing.
    """

    hash_seed: str
    flags: tuple[str, ...]
    settings: module_settings.Packed
    warning_filters: tuple[WarningFilter, ...]
    logging: LoggingSettings
    loguru: LoguruSettings | None = None
    coverage: CoverageSettings | None = None
    debugpy: DebugpySettings | None = None
    authkey: bytes = field(default=b"", repr=False)

    @classmethod
    def here(cls) -> InterpreterSettings:
        """Read the settings of this process. Called once for a run."""
        seed = os.environ.get(HASH_SEED, "")
        processes = sys.modules.get("multiprocessing.process")
        return cls(
            hash_seed=seed if seed.isdigit() else str(int.from_bytes(os.urandom(4), "big")),
            flags=tuple(flags_here()),
            settings=module_settings.packed(),
            warning_filters=tuple(_filters()),
            logging=LoggingSettings.here(),
            loguru=LoguruSettings.here(),
            coverage=CoverageSettings.here(),
            debugpy=DebugpySettings.here(),
            authkey=b"" if processes is None else bytes(processes.current_process().authkey),
        )

    def apply(self) -> None:
        """Apply the settings to this process."""
        if self.debugpy is not None:
            self.debugpy.apply()
        if self.coverage is not None:
            self.coverage.apply()
        module_settings.apply(self.settings)
        warnings.resetwarnings()
        for warning_filter in self.warning_filters:
            if warning_filter.category_module == builtins.__name__:
                warning_filter.apply(builtins, is_last=True)
        # The first filter that matches counts. Each of these is put in front of the others, so begin with the
        # last.
        for warning_filter in reversed(self.warning_filters):
            if warning_filter.category_module != builtins.__name__:
                import_hook.when_imported(warning_filter.category_module, warning_filter.apply)
        self.logging.apply()
        if self.loguru is not None:
            self.loguru.apply()
        if self.authkey:
            from multiprocessing import process

            process.current_process().authkey = self.authkey


def check_executable(part: str) -> None:
    """Raise LaunchError if `sys.executable` cannot start a Python process.

    Args:
        part: The part of launchpad that needs the process, for the error.

    Raises:
        LaunchError: `sys.executable` is empty; or Python is part of another program, which would only start
            itself again.
    """
    if getattr(sys, "frozen", False):
        raise LaunchError(
            f"{part} could not be started: this is a frozen application (sys.frozen), whose sys.executable,"
            f" {sys.executable!r}, starts the application and not Python. Launch with local_mt, or from a"
            " script that an installed Python runs"
        )
    if not sys.executable:
        raise LaunchError(
            f"{part} could not be started: sys.executable is {sys.executable!r}; set it to the path of a"
            " Python interpreter, or launch with local_mt"
        )


def flags_here() -> list[str]:
    """Return -O, -X dev, -W and the like, as they were given to this interpreter."""
    import subprocess

    # This function is private, but multiprocessing uses it for the same purpose, and no public function
    # returns the flags.
    flags: list[str] = getattr(subprocess, "_args_from_interpreter_flags", list)()
    return flags


def _filters() -> Iterator[WarningFilter]:
    filters: list[Any] = list(warnings.filters)
    for i, (action, message, category, module, line) in enumerate(filters):
        own = _class_in(sys.modules.get(category.__module__), category.__qualname__)
        can_be_named = category.__module__ != "__main__" and own is category
        if can_be_named and not _is_shadowed(category, filters[:i]):
            text, where = (getattr(each, "pattern", each) or "" for each in (message, module))
            yield WarningFilter(
                action, text, category.__module__, category.__qualname__, where, line
            )


def _class_in(module: ModuleType | None, qualname: str) -> Any:
    """Return the class of this name in a module; None if the module does not have it."""
    try:
        return functools.reduce(getattr, qualname.split("."), cast("Any", module))
    except AttributeError:
        return None


def _is_shadowed(category: type, before: list[Any]) -> bool:
    """Return True if a filter before this one catches every warning of its category.

    Such a filter must stay out: a worker that imports a package puts the filters for its categories before
    all others.
    """
    return any(
        message is None and module is None and not line and issubclass(category, earlier_category)
        for _, message, earlier_category, module, line in before
    )
