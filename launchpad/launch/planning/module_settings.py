"""Settings of a script's whole process, made with functions of modules. Workers take these settings over.

The table below lists them. A setting is taken over if the script has imported the module. It takes effect
when a worker imports the module. Settings that belong to a thread, such as decimal's current context, are not
among them, since a worker that is a thread does not have them either.
"""

from __future__ import annotations

import functools
import pickle
import sys
from collections.abc import Callable
from types import ModuleType
from typing import Any, NamedTuple

from launchpad.runtime import import_hook

Packed = tuple[tuple[str, bytes], ...]
"""The name of each setting, and its value. The value is pickled because its types may not be imported yet."""


class ModuleSetting(NamedTuple):
    """The functions that read and write one setting.

    Attributes:
        read: Returns the value; None if the script has not changed it.
    """

    module: str
    read: Callable[[Any], Any]
    write: Callable[[Any, Any], object]


def _read_stack_size(threading: Any) -> int | None:
    size: int = threading.stack_size()  # this call sets it to 0
    threading.stack_size(size)
    return size or None


def _read_locale(locale: Any) -> dict[str, str] | None:
    """Return the locale without LC_CTYPE, which Python itself sets from the environment."""
    names = ("LC_COLLATE", "LC_MONETARY", "LC_NUMERIC", "LC_TIME")
    values = {name: locale.setlocale(getattr(locale, name)) for name in names}
    return {name: value for name, value in values.items() if value != "C"} or None


def _write_locale(locale: Any, values: dict[str, str]) -> None:
    for name, value in values.items():
        locale.setlocale(getattr(locale, name), value)


def _write_decimal_context(decimal: Any, context: Any) -> None:
    """Change the context of which each thread gets a copy when it first asks for its own."""
    for name in ("prec", "rounding", "Emin", "Emax", "capitals", "clamp", "traps"):
        setattr(decimal.DefaultContext, name, getattr(context, name))


def _write_is_gc_enabled(gc: Any, is_enabled: bool) -> None:
    if is_enabled:
        gc.enable()
    else:
        gc.disable()


SETTINGS = {
    "sys.setrecursionlimit": ModuleSetting(
        "sys",
        lambda sys: sys.getrecursionlimit(),
        lambda sys, limit: sys.setrecursionlimit(limit),
    ),
    "sys.set_int_max_str_digits": ModuleSetting(
        "sys",
        lambda sys: sys.get_int_max_str_digits(),
        lambda sys, digits: sys.set_int_max_str_digits(digits),
    ),
    "sys.setswitchinterval": ModuleSetting(
        "sys",
        lambda sys: sys.getswitchinterval(),
        lambda sys, seconds: sys.setswitchinterval(seconds),
    ),
    "sys.dont_write_bytecode": ModuleSetting(
        "sys",
        lambda sys: sys.dont_write_bytecode or None,
        lambda sys, value: setattr(sys, "dont_write_bytecode", value),
    ),
    "sys.tracebacklimit": ModuleSetting(
        "sys",
        lambda sys: getattr(sys, "tracebacklimit", None),
        lambda sys, limit: setattr(sys, "tracebacklimit", limit),
    ),
    "gc.set_threshold": ModuleSetting(
        "gc",
        lambda gc: gc.get_threshold(),
        lambda gc, thresholds: gc.set_threshold(*thresholds),
    ),
    "gc.disable": ModuleSetting("gc", lambda gc: gc.isenabled(), _write_is_gc_enabled),
    "threading.stack_size": ModuleSetting(
        "threading",
        _read_stack_size,
        lambda threading, size: threading.stack_size(size),
    ),
    "socket.setdefaulttimeout": ModuleSetting(
        "socket",
        lambda socket: socket.getdefaulttimeout(),
        lambda socket, seconds: socket.setdefaulttimeout(seconds),
    ),
    "multiprocessing.set_start_method": ModuleSetting(
        "multiprocessing",
        lambda multiprocessing: multiprocessing.get_start_method(allow_none=True),
        lambda multiprocessing, method: multiprocessing.set_start_method(method, force=True),
    ),
    "locale.setlocale": ModuleSetting("locale", _read_locale, _write_locale),
    "decimal.DefaultContext": ModuleSetting(
        "decimal",
        lambda decimal: decimal.DefaultContext,
        _write_decimal_context,
    ),
    "csv.field_size_limit": ModuleSetting(
        "csv",
        lambda csv: csv.field_size_limit(),
        lambda csv, size: csv.field_size_limit(size),
    ),
    "torch.set_default_dtype": ModuleSetting(
        "torch",
        lambda torch: torch.get_default_dtype(),
        lambda torch, dtype: torch.set_default_dtype(dtype),
    ),
}


def packed() -> Packed:
    """Return the settings of this process."""
    values: dict[str, bytes] = {}
    for name, setting in SETTINGS.items():
        module = sys.modules.get(setting.module)
        value = None if module is None else setting.read(module)
        if value is not None:
            values[name] = pickle.dumps(value)
    return tuple(values.items())


def apply(settings: Packed) -> None:
    """Apply the settings to this process, each when its module is imported."""
    for name, value in settings:
        import_hook.when_imported(SETTINGS[name].module, functools.partial(_apply, name, value))


def _apply(name: str, value: bytes, module: ModuleType) -> None:
    try:
        SETTINGS[name].write(module, pickle.loads(value))
    except Exception as error:  # such as a locale that this host does not have
        why = f"{type(error).__name__}: {error}"
        print(f"{name} is not here what it is in the script: {why}", file=sys.stderr)
