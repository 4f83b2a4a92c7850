"""launchpad: describe a distributed program as a graph, run the very same graph anywhere.

    import launchpad as lp

    program = lp.Program("hello")
    server = program.add_node(lp.CourierNode(Server), label="server")
    program.add_node(lp.PyNode(greet, server), label="client")
    lp.launch(program, launch_type="local_mp")

Importing this is quick: a name's module is imported when the name is first used. Two things cannot wait:
the flags, which absl must know before it parses the command line, and `launch`, whose name is also that of
a folder in here.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from launchpad import flags
from launchpad.flags import LAUNCH_TYPE
from launchpad.launch.launch import launch, plan

if TYPE_CHECKING:
    from launchpad import courier, testing
    from launchpad.address import (
        AbstractAddressBuilder,
        Address,
        SimpleLocalAddressBuilder,
        get_port_from_address,
    )
    from launchpad.context import RunContext, current
    from launchpad.context import RunContext as LaunchContext
    from launchpad.context import current as get_context
    from launchpad.errors import (
        DefinitionError,
        LaunchError,
        LaunchpadError,
        NotRunningError,
        PayloadError,
        ProgramFailed,
        StaleError,
        Stopped,
    )
    from launchpad.executable import Executable
    from launchpad.graph import Edge, Graph
    from launchpad.handle import Deferred, Dereferenceable, Handle, maybe_dereference
    from launchpad.launch.backend import Backend, Workers
    from launchpad.launch.plan import LaunchPlan, WorkerPlan
    from launchpad.launch.registry import LaunchType, is_local_launch, is_local_launch_or_test
    from launchpad.launch.running import Running, WorkerStatus
    from launchpad.nodes.base import Node
    from launchpad.nodes.cacher import CacherNode
    from launchpad.nodes.colocation import MultiProcessingColocation, MultiThreadingColocation
    from launchpad.nodes.courier import CourierClient, CourierHandle, CourierNode
    from launchpad.nodes.python import PyClassNode, PyNode
    from launchpad.outcome import Outcome
    from launchpad.program import Program, make_program
    from launchpad.resources import PythonProcess, Resources
    from launchpad.stopping import (
        make_program_stopper,
        register_stop_handler,
        stop,
        stop_event,
        unregister_stop_handler,
        wait_for_stop,
    )

__version__ = "0.1.0"

_NAMES = {
    # Describing a program.
    "launchpad.program": "Program make_program",
    "launchpad.graph": "Edge Graph",
    "launchpad.resources": "PythonProcess Resources",
    "launchpad.handle": "Deferred Dereferenceable Handle maybe_dereference",
    "launchpad.address": "AbstractAddressBuilder Address SimpleLocalAddressBuilder get_port_from_address",
    # Nodes.
    "launchpad.nodes.base": "Node",
    "launchpad.nodes.python": "PyClassNode PyNode",
    "launchpad.nodes.courier": "CourierClient CourierHandle CourierNode",
    "launchpad.nodes.colocation": "MultiProcessingColocation MultiThreadingColocation",
    "launchpad.nodes.cacher": "CacherNode",
    "launchpad.executable": "Executable",
    # Launching.
    "launchpad.launch.registry": "LaunchType is_local_launch is_local_launch_or_test",
    "launchpad.launch.running": "Running WorkerStatus",
    "launchpad.launch.plan": "LaunchPlan WorkerPlan",
    "launchpad.launch.backend": "Backend Workers",
    "launchpad.outcome": "Outcome",
    # Inside a worker.
    "launchpad.context": "RunContext current",
    "launchpad.stopping": "make_program_stopper register_stop_handler stop stop_event unregister_stop_handler wait_for_stop",
    # Errors.
    "launchpad.errors": "DefinitionError LaunchError LaunchpadError NotRunningError PayloadError ProgramFailed StaleError Stopped",
}
_MODULE_OF = {name: module for module, names in _NAMES.items() for name in names.split()}
_ALIASES = {"LaunchContext": "RunContext", "get_context": "current"}  # dm-launchpad's names
_MODULES = ("courier", "testing")

__all__ = ["LAUNCH_TYPE", "flags", "launch", "plan", *_MODULE_OF, *_ALIASES, *_MODULES]


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return importlib.import_module(f"launchpad.{name}")
    wanted = _ALIASES.get(name, name)
    if wanted not in _MODULE_OF:
        raise AttributeError(f"module 'launchpad' has no attribute {name!r}")
    value = globals()[name] = getattr(importlib.import_module(_MODULE_OF[wanted]), wanted)
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
