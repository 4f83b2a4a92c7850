"""The public names, each with its subject in the API reference."""

from __future__ import annotations

import ast
import importlib
import inspect
import itertools
import re
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass, field
from types import ModuleType
from typing import Any

EXAMPLE = re.compile(r"^Example:\n((?:(?: {4}.*)?\n)+)", re.M)
PACKAGES = ["launchpad", *(f"launchpad.{name}" for name in "courier edges replay testing".split())]

# Subject → its modules. A name has the subject of the longest module path that it begins with.
SUBJECTS = {
    "Programs": "program graph handle runtime.executable address nodes.base resources restart_policy",
    "Nodes": "nodes collectives.node queues.node replay.node",
    "Launching": "launch flags outcome telemetry simulation",
    "In a worker": "runtime services.inbox",
    "Calls": "courier",
    "Edges": "edges telemetry.edge_stats courier.transport.link",
    "Collectives": "collectives",
    "Queues, pools, counters": "queues pools work_queues counters",
    "Replay": "replay",
    "Testing": "testing courier.transport.fault_injection",
    "Errors": "errors courier.errors",
    "For programs of dm-launchpad": "compat",
}

# The names of each subject that people need first, in this order. The others follow alphabetically.
FIRST = [
    f"lp.{name}"
    for name in (
        "Program Handle RestartPolicy Resources Deferred"
        " CourierNode PyNode PyClassNode QueueNode ReplayNode CollectiveNode PoolNode"
        " launch run Running plan LaunchType"
        " current stop wait_for_stop heartbeat barrier caller"
        " CourierClient submit broadcast sharded idempotent with_options"
        " Queue Pool pool WorkQueue Counter"
        " ProgramFailed DefinitionError PayloadError LaunchError Stopped"
        " courier.OutcomeUnknown courier.WorkerFailed courier.RemoteError courier.DeadlineExceeded"
    ).split()
]


@dataclass
class PublicName:
    """A name that users import.

    Attributes:
        names: The names by which users can reach the object, such as `lp.Queue`.
        path: The path of its definition, such as `launchpad.queues.client.Queue`.
        value: The object itself.
    """

    names: list[str]
    path: str
    value: Any = field(repr=False)

    @property
    def name(self) -> str:
        """The first of its names, which is the title of its page."""
        return self.names[0]

    @property
    def own_name(self) -> str:
        """The name in its definition."""
        return self.path.rpartition(".")[2]

    @property
    def subject(self) -> str:
        """The subject in the API reference."""
        fits = {
            module: subject
            for subject, modules in SUBJECTS.items()
            for module in modules.split()
            if f"{self.path}.".startswith(f"launchpad.{module}.")
        }
        if not fits:
            raise LookupError(f"{self.path} is under no subject of {__file__}")
        return fits[max(fits, key=len)]

    @property
    def doc(self) -> str:
        """The docstring. For a constant, the string below its definition."""
        if self.is_module or inspect.isclass(self.value) or inspect.isfunction(self.value):
            return inspect.getdoc(self.value) or ""
        module = importlib.import_module(self.path.rpartition(".")[0])
        for statement, text in itertools.pairwise(ast.parse(inspect.getsource(module)).body):
            if (
                isinstance(statement, ast.AnnAssign)
                and ast.unparse(statement.target) == self.own_name
            ):
                assert isinstance(text, ast.Expr)
                return inspect.cleandoc(ast.literal_eval(text.value))
        return ""

    @property
    def example(self) -> str:
        """The code of the example in its docstring."""
        match = EXAMPLE.search(f"{self.doc}\n")
        return textwrap.dedent(match[1]).strip() if match else ""

    @property
    def is_module(self) -> bool:
        """True if it is a module. The page of a module lists its members."""
        return isinstance(self.value, ModuleType)


def public_names() -> list[PublicName]:
    """Return all public names, starting with those that people need first."""
    by_id: dict[int, PublicName] = {}
    for package in PACKAGES:
        module = importlib.import_module(package)
        for name in module.__all__:
            value = getattr(module, name)
            short = f"{package}.{name}".replace("launchpad", "lp", 1)
            if id(value) in by_id:
                by_id[id(value)].names.append(short)
            else:
                by_id[id(value)] = PublicName([short], _path(value, package, name), value)
    # The shortest name comes first. Of lp.current and lp.get_context, the former does, because the
    # function itself has that name.
    for public_name in by_id.values():
        public_name.names.sort(key=lambda name: (name.count("."), public_name.own_name not in name))
    return sorted(by_id.values(), key=_place)


def _place(public_name: PublicName) -> tuple[int, str]:
    place = FIRST.index(public_name.name) if public_name.name in FIRST else len(FIRST)
    return place, public_name.name.lower()


def _path(value: Any, package: str, name: str) -> str:
    if isinstance(value, ModuleType):
        return value.__name__
    if inspect.isclass(value) or inspect.isfunction(value):
        return f"{value.__module__}.{value.__qualname__}"
    return f"launchpad.flags.{name}" if package == "launchpad" else f"{package}.{name}"


def members(module: ModuleType) -> Iterator[str]:
    """Yield the public names in a public module."""
    for name in getattr(module, "__all__", ()):
        yield f"{module.__name__}.{name}".replace("launchpad", "lp", 1)
