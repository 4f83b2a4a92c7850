"""launchpad: describe a distributed program as a graph, run the very same graph anywhere.

    import launchpad as lp

    program = lp.Program("hello")
    server = program.add_node(lp.CourierNode(Server), label="server")
    program.add_node(lp.PyNode(ask, server), label="client")
    lp.launch(program, launch_type="local_mp")

Importing this is quick: a name's module is imported when the name is first used. `__init__.pyi` says which
module that is: it is the one list of all public names, which type checkers read too. One thing cannot
wait: `launch`, whose name is also that of a folder in here.
"""

from __future__ import annotations

from launchpad.launch import excepthook

excepthook.install()  # first of all, so that it covers the rest of the import
# ruff: noqa: E402

import importlib
import sys

from launchpad.launch import exit_hooks
from launchpad.launch.launch import launch, plan
from launchpad.runtime import import_hook

TYPE_CHECKING = False  # as checkers read it; `typing` takes milliseconds
if TYPE_CHECKING:
    from typing import Any

import_hook.when_imported("absl.flags", lambda _: __import__("launchpad.flags"))
exit_hooks.install()
if any(argument.lstrip("-").startswith(("lp_", "nolp_")) for argument in sys.argv[1:]):
    importlib.import_module("launchpad.launch.script_flags").take_from_parsers_that_refuse_them()

__version__ = "0.1.0"


# Public name → the module that has it. Each line is `from MODULE import NAME as NAME`.
_MODULES = {
    line.split()[3]: line.split()[1]
    for line in __spec__.loader.get_data(f"{__path__[0]}/__init__.pyi").decode().splitlines()
    if line.startswith("from ")
}
__all__ = list(_MODULES)


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module 'launchpad' has no attribute {name!r}")
    module = _MODULES[name]
    if module == __name__:
        return importlib.import_module(f"{module}.{name}")
    value = globals()[name] = getattr(importlib.import_module(module), name)
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
