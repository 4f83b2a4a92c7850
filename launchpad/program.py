"""Program: the graph. It is data: launching reads it and never writes to it."""

from __future__ import annotations

import contextlib
import pickle
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import field
from typing import Any, TypeVar

from launchpad.courier.light_dataclass import dataclass
from launchpad.errors import DefinitionError
from launchpad.graph.graph import Edge, Graph
from launchpad.graph.picture import mermaid
from launchpad.handle import Handle
from launchpad.nodes.base import Node
from launchpad.resources import Resources
from launchpad.restart_policy import NO_RESTARTS, RestartPolicy, refuse_endless_main
from launchpad.runtime import user_code
from launchpad.traverse import Opaque

HandleT = TypeVar("HandleT", bound=Handle[Any])

UNTIL_RUN, UNTIL_GROUP, UNTIL_PROGRAM = SERVES_UNTIL = ("run", "group", "program")
"""For how long a worker serves others whose own `run()` has returned."""

SetUp = Callable[[], object]
"""A function that each process of workers runs first."""

_LABEL = re.compile(r"[A-Za-z0-9_]([A-Za-z0-9._-]{0,61}[A-Za-z0-9_])?")


@dataclass(frozen=True)
class Group:
    """Nodes of one label, and what holds for all of them."""

    label: str
    resources: Resources = field(default_factory=Resources)
    restart: RestartPolicy = NO_RESTARTS
    main: bool = False
    preload: tuple[str, ...] = ()
    serves_until: str = UNTIL_RUN
    setup: SetUp | None = None


class Program(Opaque):
    """A distributed program, described as a graph of nodes.

    Example:
        program = lp.Program("hello")
        with program.group("server"):
          server = program.add_node(lp.CourierNode(Server))
        program.add_node(lp.PyNode(ask, server), label="client")
        lp.launch(program)

    A mistake is a DefinitionError (a ValueError) at the line that makes it. A Program may be launched
    more than once, also at the same time, and pickled if its nodes' arguments can be. One that a node holds,
    as its builder's attribute say, travels to the worker without its nodes.

    Args:
        name: What reports and listings call it.
        setup: A function without arguments that runs first in each process of a worker, and again after a
            restart: for what a script sets in other modules and workers are to find there, such as
            `gymnasium.register`, entries of a registry, torch's default dtype. On threads it runs once.

    Raises:
        DefinitionError: the name is empty, or no text; `setup` cannot be called without arguments.
    """

    def __init__(self, name: str, *, setup: SetUp | None = None) -> None:
        if not isinstance(name, str) or not name:
            raise DefinitionError(f"a program needs a name, got {name!r}")
        _check_setup(f"program {name!r}", setup)
        self._name = name
        self._setup = setup
        self._nodes: dict[str, list[Node[Any]]] = {}
        self._groups: dict[str, Group] = {}
        self._current: str | None = None

    def __deepcopy__(self, memo: object) -> Program:
        # As a pickle: the handles in it, also those in closures, then stand for the nodes of the copy.
        from launchpad.courier.codec import by_value

        copied: Program = pickle.loads(by_value.dumps(self, pickle.HIGHEST_PROTOCOL))
        return copied

    @property
    def name(self) -> str:
        """Its name in reports and listings."""
        return self._name

    @property
    def setup(self) -> SetUp | None:
        """Lists what each process of a worker runs first."""
        return self._setup

    @property
    def groups(self) -> dict[str, list[Node[Any]]]:
        """Label → its nodes, in the order in which groups were opened."""
        return {label: list(nodes) for label, nodes in self._nodes.items()}

    @property
    def current_group(self) -> str | None:
        """The label of the open group; None outside one."""
        return self._current

    def group_options(self, label: str) -> Group:
        """The options with which the group was opened."""
        return self._groups[label]

    def get_all_nodes(self) -> list[Node[Any]]:
        """All nodes, group by group."""
        return [node for nodes in self._nodes.values() for node in nodes]

    @contextlib.contextmanager
    def group(
        self,
        label: str,
        *,
        resources: Resources | None = None,
        restart: RestartPolicy | None = None,
        main: bool = False,
        preload: Sequence[str] = (),
        serves_until: str = UNTIL_RUN,
        setup: SetUp | None = None,
    ) -> Iterator[str]:
        """Opens a group: the nodes added inside are its replicas. Opening it again adds to it.

        Args:
            label: Letters, digits, dots, dashes and underscores, 63 at most; begins and ends with a letter
                or digit. Workers are called `label-0`, `label-1`, …
            resources: What each replica gets.
            restart: What happens when one of them ends; None: a failure ends the program.
            main: The program ends, well, when all main groups have ended.
            preload: Modules, such as `"torch"`, that are imported once, before the workers are forked: these
                start, and start again, without importing them, and share their memory.
            serves_until: How long one whose `run()` has returned answers calls: no longer (`run`), until that
                of all in this `group` has, for those that call each other, or until the `program` stops.
            setup: As that of the program, for the workers of this group; it runs after that.

        Raises:
            DefinitionError: a bad label, a group inside a group, or other options than at its first opening.
        """
        _check_label(label)
        if restart is not None and not isinstance(restart, RestartPolicy):
            raise DefinitionError(f"restart= takes lp.RestartPolicy(…), got {restart!r}")
        if main and restart is not None:
            refuse_endless_main(label, restart)
        if resources is not None and not isinstance(resources, Resources):
            raise DefinitionError(f"resources= takes lp.Resources(…), got {resources!r}")
        _check_setup(f"group {label!r}", setup)
        if serves_until not in SERVES_UNTIL:
            known = ", ".join(SERVES_UNTIL)
            raise DefinitionError(f"serves_until={serves_until!r}: expected one of {known}")
        self._open_group(
            Group(
                label,
                resources or Resources(),
                restart or NO_RESTARTS,
                main,
                checked_modules(preload),
                serves_until,
                setup,
            )
        )
        self._current = label
        try:
            yield label
        finally:
            self._current = None

    def add_node(self, node: Node[HandleT], label: str | None = None) -> HandleT:
        """Adds a node and returns its handle, which other nodes take as an argument.

        Args:
            node: A node that is in no program yet.
            label: Its group. Needed outside `with program.group(…)`; inside it may be left out.

        Raises:
            DefinitionError: no label, another label than the open group's, a node added before, or one that
                cannot run: wrong arguments, a class without `run()`, a generator.
        """
        if not isinstance(node, Node):
            raise TypeError(f"add_node takes a node such as lp.CourierNode(…), got {node!r}")
        if label is None:
            if self._current is None:
                raise DefinitionError("outside `with program.group(…)` add_node needs a label")
            label = self._current
        elif self._current is not None and label != self._current:
            raise DefinitionError(
                f"the node is added inside group {self._current!r} with another label, {label!r};"
                " leave the label out"
            )
        _check_label(label)
        owner, added_at = f"group {label!r} of program {self._name!r}", _line_of_caller()
        members = (node, *node.members())
        for each in members:
            if each.added_at:
                raise DefinitionError(
                    f"{each!r} is added twice: to {each.added_to} at {each.added_at}, and to {owner} at"
                    f" {added_at}. Make a second node for a second replica."
                )
            each.check_definition(is_final=False)
        if label not in self._groups:
            self._open_group(Group(label))
        for each in members:
            each.added_at, each.added_to = added_at, owner
            for address in each.addresses:
                address.owner = f"{each!r} in {owner}"
        siblings = [m for n in self._nodes[label] for m in (n, *n.members())]
        self._nodes[label].append(node)
        for each in members:
            each.joined(label, siblings, self._add_worker)
            siblings.append(each)
        return node.create_handle()

    def edges(self) -> list[Edge]:
        """Which node holds whose handle, as data: one Edge for each place where a handle was found."""
        return list(self.graph().edges)

    def graph(self) -> Graph:
        """The whole graph as data; `.to_dict()` for JSON."""
        return Graph.of(self._name, self.groups)

    def to_mermaid(self) -> str:
        """The graph as a Mermaid flowchart, which GitHub and most editors draw."""
        return mermaid(self)

    def __str__(self) -> str:
        return str(self.graph())

    def __repr__(self) -> str:
        return f"Program({self._name!r}, {len(self.get_all_nodes())} nodes)"

    def _repr_mimebundle_(self, **_: object) -> dict[str, str]:
        """What a notebook shows: the richest of these that it can draw."""
        from launchpad.graph.svg import svg

        return {
            "text/vnd.mermaid": self.to_mermaid(),
            "image/svg+xml": svg(self),
            "text/plain": str(self),
        }

    def _add_worker(self, node: Node[HandleT], label: str) -> HandleT:
        """Adds what serves the nodes of a group, while that may be open."""
        current, self._current = self._current, None
        try:
            return self.add_node(node, label)
        finally:
            self._current = current

    def _open_group(self, options: Group) -> None:
        label, known = options.label, self._groups.get(options.label)
        if self._current is not None:
            raise DefinitionError(
                f"group {label!r} is opened inside group {self._current!r}; groups do not nest"
            )
        if known is not None and known != options and options != Group(label):
            raise DefinitionError(f"group {label!r} was opened before with other options: {known}")
        if known is None:
            self._groups[label] = options
            self._nodes[label] = []


def make_program(*nodes: Node[Any], name: str = "program") -> Program:
    """A program of these nodes, each in a group of its own: `CourierNode(Learner)` becomes `learner`.

    A label is the constructor's name in snake_case; nodes of the same constructor share a group.

    Example:
        server = lp.CourierNode(Server)
        lp.launch(lp.make_program(server, lp.PyNode(ask, server.create_handle())))
    """
    program = Program(name)
    for node in nodes:
        inner = re.search(r"\((\w+)", repr(node))
        constructor = inner.group(1) if inner else type(node).__name__
        words = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", constructor)
        program.add_node(node, label=words.strip("_").lower() or "node")
    return program


def checked_modules(names: Sequence[str]) -> tuple[str, ...]:
    """Names of modules; DefinitionError if they are no such names."""
    if isinstance(names, str) or not all(
        isinstance(name, str) and all(part.isidentifier() for part in name.split("."))
        for name in names
    ):
        raise DefinitionError(f"preload= takes names of modules, as ['torch'], got {names!r}")
    return tuple(names)


def _check_setup(owner: str, setup: SetUp | None) -> None:
    if setup is None:
        return
    if not callable(setup):
        raise DefinitionError(f"{owner}: setup= takes a function without arguments, got {setup!r}")
    user_code.check_function(f"setup= of {owner}", setup)
    user_code.check_arguments(f"setup= of {owner}", setup, (), {})


def _check_label(label: str) -> None:
    if not isinstance(label, str) or not _LABEL.fullmatch(label):
        raise DefinitionError(
            f"{label!r} cannot be a label: expected 1 to 63 letters, digits, underscores, dots or dashes,"
            " with no dot or dash at either end"
        )


def _line_of_caller() -> str:
    """`file.py:12`, the nearest line outside this package."""
    here = __name__.partition(".")[0]
    frame = sys._getframe(1)
    while frame.f_back and frame.f_globals.get("__name__", "").partition(".")[0] == here:
        frame = frame.f_back
    return f"{frame.f_code.co_filename}:{frame.f_lineno}"
