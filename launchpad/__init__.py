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

from launchpad.launch import no_traceback

no_traceback.install()  # first of all, for the rest of the import too
# ruff: noqa: E402

import importlib
from typing import TYPE_CHECKING, Any

from launchpad import flags
from launchpad.flags import LAUNCH_TYPE
from launchpad.launch.launch import launch, plan

if TYPE_CHECKING:  # for checkers and editors: the same names, as they find them
    from launchpad import courier as courier
    from launchpad import testing as testing
    from launchpad.address import AbstractAddressBuilder as AbstractAddressBuilder
    from launchpad.address import Address as Address
    from launchpad.address import SimpleLocalAddressBuilder as SimpleLocalAddressBuilder
    from launchpad.address import get_port_from_address as get_port_from_address
    from launchpad.context import RunContext as RunContext
    from launchpad.context import current as current
    from launchpad.courier.batching.handler import batched_handler as batched_handler
    from launchpad.courier.clients.typed import CourierClient as CourierClient
    from launchpad.courier.clients.typed import submit as submit
    from launchpad.courier.clients.typed import with_options as with_options
    from launchpad.courier.groups.group import broadcast as broadcast
    from launchpad.courier.groups.group import round_robin as round_robin
    from launchpad.courier.groups.group import shard_by as shard_by
    from launchpad.courier.servers.served import idempotent as idempotent
    from launchpad.courier.servers.served import priority as priority
    from launchpad.courier.servers.served import serves as serves
    from launchpad.errors import DefinitionError as DefinitionError
    from launchpad.errors import DoNotRestart as DoNotRestart
    from launchpad.errors import LaunchError as LaunchError
    from launchpad.errors import LaunchpadError as LaunchpadError
    from launchpad.errors import NotRunningError as NotRunningError
    from launchpad.errors import PayloadError as PayloadError
    from launchpad.errors import ProgramFailed as ProgramFailed
    from launchpad.errors import StaleError as StaleError
    from launchpad.errors import Stopped as Stopped
    from launchpad.executable import Executable as Executable
    from launchpad.graph import Edge as Edge
    from launchpad.graph import Graph as Graph
    from launchpad.handle import Deferred as Deferred
    from launchpad.handle import Dereferenceable as Dereferenceable
    from launchpad.handle import Handle as Handle
    from launchpad.handle import maybe_dereference as maybe_dereference
    from launchpad.launch.backend import Backend as Backend
    from launchpad.launch.backend import Workers as Workers
    from launchpad.launch.detached import Detached as Detached
    from launchpad.launch.plan import LaunchPlan as LaunchPlan
    from launchpad.launch.plan import WorkerPlan as WorkerPlan
    from launchpad.launch.registry import LaunchType as LaunchType
    from launchpad.launch.registry import is_local_launch as is_local_launch
    from launchpad.launch.registry import is_local_launch_or_test as is_local_launch_or_test
    from launchpad.launch.running import Running as Running
    from launchpad.launch.status import WorkerStatus as WorkerStatus
    from launchpad.nodes.base import Node as Node
    from launchpad.nodes.cacher import CacherNode as CacherNode
    from launchpad.nodes.colocation import MultiProcessingColocation as MultiProcessingColocation
    from launchpad.nodes.colocation import MultiThreadingColocation as MultiThreadingColocation
    from launchpad.nodes.courier import CourierHandle as CourierHandle
    from launchpad.nodes.courier import CourierNode as CourierNode
    from launchpad.nodes.python import PyClassNode as PyClassNode
    from launchpad.nodes.python import PyNode as PyNode
    from launchpad.outcome import Outcome as Outcome
    from launchpad.program import Program as Program
    from launchpad.program import make_program as make_program
    from launchpad.resources import PythonProcess as PythonProcess
    from launchpad.resources import Resources as Resources
    from launchpad.restart_policy import RestartPolicy as RestartPolicy
    from launchpad.stopping import make_program_stopper as make_program_stopper
    from launchpad.stopping import register_stop_handler as register_stop_handler
    from launchpad.stopping import stop as stop
    from launchpad.stopping import stop_event as stop_event
    from launchpad.stopping import unregister_stop_handler as unregister_stop_handler
    from launchpad.stopping import wait_for_stop as wait_for_stop

    LaunchContext = RunContext
    get_context = current

__version__ = "0.1.0"

_NAMES = {
    # Describing a program.
    "launchpad.program": "Program make_program",
    "launchpad.graph": "Edge Graph",
    "launchpad.resources": "PythonProcess Resources",
    "launchpad.restart_policy": "RestartPolicy",
    "launchpad.handle": "Deferred Dereferenceable Handle maybe_dereference",
    "launchpad.address": "AbstractAddressBuilder Address SimpleLocalAddressBuilder get_port_from_address",
    # Nodes.
    "launchpad.nodes.base": "Node",
    "launchpad.nodes.python": "PyClassNode PyNode",
    "launchpad.nodes.courier": "CourierHandle CourierNode",
    "launchpad.nodes.colocation": "MultiProcessingColocation MultiThreadingColocation",
    "launchpad.nodes.cacher": "CacherNode",
    "launchpad.executable": "Executable",
    # Calling.
    "launchpad.courier.batching.handler": "batched_handler",
    "launchpad.courier.groups.group": "broadcast round_robin shard_by",
    "launchpad.courier.servers.served": "idempotent priority serves",
    "launchpad.courier.clients.typed": "CourierClient submit with_options",
    # Launching.
    "launchpad.launch.registry": "LaunchType is_local_launch is_local_launch_or_test",
    "launchpad.launch.running": "Running",
    "launchpad.launch.status": "WorkerStatus",
    "launchpad.launch.detached": "Detached",
    "launchpad.launch.plan": "LaunchPlan WorkerPlan",
    "launchpad.launch.backend": "Backend Workers",
    "launchpad.outcome": "Outcome",
    # Inside a worker.
    "launchpad.context": "RunContext current",
    "launchpad.stopping": "make_program_stopper register_stop_handler stop stop_event"
    " unregister_stop_handler wait_for_stop",
    # Errors.
    "launchpad.errors": "DefinitionError DoNotRestart LaunchError LaunchpadError NotRunningError PayloadError"
    " ProgramFailed StaleError Stopped",
}
_MODULE_OF = {name: module for module, names in _NAMES.items() for name in names.split()}
_ALIASES = {"LaunchContext": "RunContext", "get_context": "current"}  # dm-launchpad's names
_MODULES = ("courier", "testing")

__all__ = ["LAUNCH_TYPE", "flags", "launch", "plan", *_MODULE_OF, *_ALIASES, *_MODULES]


if not TYPE_CHECKING:  # to checkers this would mean that there is a name for everything

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
