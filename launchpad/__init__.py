"""launchpad: describe a distributed program as a graph of nodes, and run the same graph anywhere.

    import launchpad as lp

    program = lp.Program("hello")
    server = program.add_node(lp.CourierNode(Server), label="server")
    program.add_node(lp.PyNode(ask, server), label="client")
    lp.launch(program, launch_type="local_mp")

This import is quick: the module that defines a public name is imported when the name is first used.
`__init__.pyi` lists all public names with their modules; type checkers read it too. Only `launch` is
imported at once, because `launchpad.launch` is also a folder.
"""

from __future__ import annotations

from launchpad.launch import excepthook

# Install it before anything else, so that it covers the rest of the import.
excepthook.install()
# ruff: noqa: E402

import importlib
import sys

from launchpad.launch import exit_hooks
from launchpad.launch.launch import launch, plan
from launchpad.runtime import import_hook

# Type checkers read this name as `typing.TYPE_CHECKING`. Importing `typing` would take milliseconds.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

import_hook.when_imported("absl.flags", lambda _: __import__("launchpad.flags"))
exit_hooks.install()
if any(argument.lstrip("-").startswith(("lp_", "nolp_")) for argument in sys.argv[1:]):
    importlib.import_module("launchpad.launch.script_flags").take_from_parsers_that_refuse_them()

__version__ = "0.1.0"


# Public name → the module that defines it. Each line reads `from MODULE import NAME as NAME`.
_MODULES = {
    line.split()[3]: line.split()[1]
    for line in __spec__.loader.get_data(f"{__path__[0]}/__init__.pyi").decode().splitlines()
    if line.startswith("from ")
}
__all__ = list(_MODULES)


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        from launchpad.courier.explained import no_attribute

        raise no_attribute("launchpad", name, __all__, "launchpad.other_names:MODULE")
    module = _MODULES[name]
    if module == __name__:
        return importlib.import_module(f"{module}.{name}")
    value = getattr(importlib.import_module(module), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
