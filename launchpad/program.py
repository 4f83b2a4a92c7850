"""Program: the graph of nodes. It is data: a launch reads it and never writes to it."""

from __future__ import annotations

import contextlib
import functools
import inspect
import pickle
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import field
from typing import Any, TypeVar, overload

from launchpad.courier.checks import is_whole
from launchpad.courier.explained import Explained, explains_arguments
from launchpad.courier.light_dataclass import dataclass
from launchpad.errors import DefinitionError
from launchpad.graph.graph import Edge, Graph
from launchpad.graph.picture import dot, mermaid
from launchpad.handle import Handle
from launchpad.nodes.base import Node
from launchpad.resources import Resources
from launchpad.restart_policy import GROUP_RESTARTS, NO_RESTARTS, RestartPolicy, refuse_endless_main
from launchpad.runtime import user_code
from launchpad.traverse import Opaque

HandleT = TypeVar("HandleT", bound=Handle[Any])

UNTIL_RUN = "run"
UNTIL_GROUP = "group"
UNTIL_PROGRAM = "program"
SERVES_UNTIL = (UNTIL_RUN, UNTIL_GROUP, UNTIL_PROGRAM)
"""How long a worker goes on serving after its own `run()` has returned."""

SetUp = Callable[[], object]
"""A function that each worker's process runs first."""

_LABEL = re.compile(r"[A-Za-z0-9_]([A-Za-z0-9._-]{0,61}[A-Za-z0-9_])?")


@dataclass(frozen=True)
class Group:
    """The options of a group. They apply to all nodes with the group's label."""

    label: str
    resources: Resources = field(default_factory=Resources)
    restart: RestartPolicy = NO_RESTARTS
    main: bool = False
    preload: tuple[str, ...] = ()
    serves_until: str = UNTIL_RUN
    setup: SetUp | None = None


class Program(Explained, Opaque):
    """A distributed program, described as a graph of nodes.

    Example:
        program = lp.Program("hello")
        with program.group("server"):
          server = program.add_node(lp.CourierNode(Server))
        program.add_node(lp.PyNode(ask, server), label="client")
        lp.launch(program)

    A mistake raises DefinitionError (a ValueError) at the line with the mistake. You can launch a Program
    more than once, also at the same time. You can pickle it if its nodes' arguments can be pickled. A node's
    arguments may hold a Program, for instance as an attribute of the object that built it. The worker then
    gets the Program without its nodes.

    Args:
        name: The name used in reports and listings.
        setup: A function without arguments that runs first in each worker's process, and again after a
            restart. Use it for settings that the script makes in other modules and that workers need too,
            such as `gymnasium.register`, entries of a registry, torch's default dtype. With threads it runs
            once.

    Raises:
        DefinitionError: the name is empty or not a string, or `setup` cannot be called without arguments.
    """

    _other_names = "launchpad.other_names:PROGRAM"

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
        # Copy by pickling, so that the copy's handles, even those in closures, refer to the copy's nodes.
        from launchpad.courier.codec import by_value

        copy: Program = pickle.loads(by_value.dumps(self, pickle.HIGHEST_PROTOCOL))
        return copy

    @property
    def name(self) -> str:
        """The program's name in reports and listings."""
        return self._name

    @property
    def setup(self) -> SetUp | None:
        """The function that each worker's process runs first, or None."""
        return self._setup

    @property
    def groups(self) -> dict[str, list[Node[Any]]]:
        """The nodes of each group, by label, in the order in which the groups were opened."""
        return {label: list(nodes) for label, nodes in self._nodes.items()}

    @property
    def current_group(self) -> str | None:
        """The label of the open group; None outside `with program.group(…)`."""
        return self._current

    def group_options(self, label: str) -> Group:
        """Return the options with which the group was opened."""
        return self._groups[label]

    def get_all_nodes(self) -> list[Node[Any]]:
        """Return all nodes, group by group."""
        return [node for nodes in self._nodes.values() for node in nodes]

    @explains_arguments("launchpad.other_names:GROUP")
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
        """Open a group: the nodes added inside the `with` block are its replicas. Reopening it adds to it.

        Args:
            label: Up to 63 letters, digits, dots, dashes and underscores, with no dot or dash at either
                end. Workers are called `label-0`, `label-1`, …
            resources: The resources of each replica.
            restart: What happens when a replica ends. With None, a failure ends the program.
            main: If True, this is a main group. The program succeeds, and ends, when all its main groups have
                ended.
            preload: Modules, such as `"torch"`, that are imported once, before the workers are forked.
                Workers then start and restart without importing these modules again, and share the modules'
                memory.
            serves_until: How long a worker answers calls after its own `run()` has returned. `run`: it stops
                at once. `group`: until every `run()` of the group has returned, for replicas that call each
                other. `program`: until the program stops.
            setup: Like the program's `setup`, for the workers of this group; it runs after the program's.

        Raises:
            DefinitionError: the label is not valid, another group is open, or the group was opened before
                with other options.
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
            choices = ", ".join(SERVES_UNTIL)
            raise DefinitionError(f"serves_until={serves_until!r}: expected one of {choices}")
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

    @overload
    def add_node(self, node: Node[HandleT], label: str | None = None) -> HandleT: ...

    @overload
    def add_node(
        self, node: Node[HandleT], label: str | None = None, *, replicas: int
    ) -> list[HandleT]: ...

    @explains_arguments("launchpad.other_names:ADD_NODE")
    def add_node(
        self, node: Node[HandleT], label: str | None = None, *, replicas: int | None = None
    ) -> HandleT | list[HandleT]:
        """Add a node and return its handle, which you pass to other nodes as an argument.

        Example:
            learner = program.add_node(lp.CourierNode(Learner), label="learner")
            actors = program.add_node(lp.CourierNode(Actor, learner), label="actor", replicas=32)

        Args:
            node: A node that has not been added to a program yet.
            label: The group of the node. Required outside `with program.group(…)`, optional inside it.
            replicas: If given, that many nodes like `node` are added, and their handles are returned as a
                list. They have the same arguments. In a worker, `lp.current().replica_index` says which of
                them it is, and `lp.current().seed` differs.

        Raises:
            DefinitionError: there is no label, the label differs from the open group's, the node was added
                before, or the node cannot run (wrong arguments, a class without `run()`, a generator);
                `replicas` is not a whole number, 0 or more, or a node of this kind can't have replicas.
            TypeError: `node` is not a node.
        """
        if not isinstance(node, Node):
            raise TypeError(_no_node(node))
        if replicas is None:
            return self._add(node, label)
        if not is_whole(replicas, at_least=0):
            raise DefinitionError(f"replicas={replicas!r}: expected a whole number, 0 or more")
        nodes = [node, *(node.replica() for _ in range(1, replicas))]
        return [self._add(each, label) for each in nodes[:replicas]]

    def _add(self, node: Node[HandleT], label: str | None) -> HandleT:
        """Add one node, and return its handle."""
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
        owner = f"group {label!r} of program {self._name!r}"
        added_at = _line_of_caller()
        members = (node, *node.members())
        for member in members:
            if member.added_at:
                raise DefinitionError(
                    f"{member!r} is added twice: to {member.added_to} at {member.added_at}, and to {owner} at"
                    f" {added_at}. Make a second node for a second replica."
                )
            member.check_definition(is_final=False)
        if label not in self._groups:
            self._open_group(Group(label))
        for member in members:
            member.added_at = added_at
            member.added_to = owner
            for address in member.addresses:
                address.owner = f"{member!r} in {owner}"
        siblings = [m for n in self._nodes[label] for m in (n, *n.members())]
        self._nodes[label].append(node)
        for member in members:
            member.joined(label, siblings, self._add_worker)
            siblings.append(member)
        return node.create_handle()

    def edges(self) -> list[Edge]:
        """Return the graph's edges: one for each place in a node's arguments where a handle was found."""
        return list(self.graph().edges)

    def graph(self) -> Graph:
        """Return the whole graph as data; call `.to_dict()` on it for JSON."""
        return Graph.of(self._name, self.groups)

    def to_mermaid(self) -> str:
        """Return the graph as a Mermaid flowchart, which GitHub and most editors draw."""
        return mermaid(self)

    def to_dot(self) -> str:
        """Return the graph in the language of Graphviz."""
        return dot(self)

    def to_svg(self) -> str:
        """Return the graph as an SVG picture, such as `launchpad graph --format svg` writes."""
        from launchpad.graph.svg import svg

        return svg(self)

    def __str__(self) -> str:
        return str(self.graph())

    def __repr__(self) -> str:
        return f"Program({self._name!r}, {len(self.get_all_nodes())} nodes)"

    def _repr_mimebundle_(self, **_: object) -> dict[str, str]:
        """Return the graph in three formats; a notebook shows the richest that it can draw."""
        return {
            "text/vnd.mermaid": self.to_mermaid(),
            "image/svg+xml": self.to_svg(),
            "text/plain": str(self),
        }

    def _add_worker(self, node: Node[HandleT], label: str) -> HandleT:
        """Add a node that serves the nodes of a group, even while that group is open."""
        current = self._current
        self._current = None
        try:
            return self._add(node, label)
        finally:
            self._current = current

    def _open_group(self, options: Group) -> None:
        label = options.label
        earlier = self._groups.get(options.label)
        if self._current is not None:
            raise DefinitionError(
                f"group {label!r} is opened inside group {self._current!r}; groups do not nest"
            )
        if earlier is not None and earlier != options and options != Group(label):
            raise DefinitionError(
                f"group {label!r} was opened before with other options: {earlier}"
            )
        if earlier is None:
            self._groups[label] = options
            self._nodes[label] = []


def make_program(*nodes: Node[Any], name: str = "program") -> Program:
    """Make a program of these nodes, with labels from their constructors: `CourierNode(Learner)` → `learner`.

    A label is the constructor's name in snake_case. Nodes with the same constructor share a group.

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


def ranks(
    function: Callable[..., Any],
    n: int,
    /,
    *args: Any,
    resources: Resources | None = None,
    restart: RestartPolicy | None = GROUP_RESTARTS,
    backend: str = "courier",
    timeout_s: float = 600.0,
    **kwargs: Any,
) -> Program:
    """Make a program of `n` ranks that call `function(group, *args, **kwargs)` together.

    Example:
        def train(group: lp.Collective, steps):
          for step in range(steps):
            gradient = group.all_reduce(gradient_of(batch(step, group.rank)), op="mean")

        results = lp.run(lp.ranks(train, 4, steps=1000), "local_mp")["rank"]

    The ranks are the replicas of the group "rank", and the program has the function's name. Each rank is an
    `lp.CollectiveNode`, so `function` may also be a class. If a rank dies, all ranks start again, as the next
    generation, up to three times a minute.

    To pass the function an argument that is called like one of the options below, use `functools.partial`.

    Args:
        function: A function or a class. Its first argument is the rank's `lp.Collective`.
        n: The number of ranks.
        resources: The resources of each rank, such as `lp.Resources(gpus=1)`.
        restart: What happens when a rank dies. With None, the program fails.
        backend: As for `lp.CollectiveNode`: how the collective's own operations exchange values.
        timeout_s: As for `lp.CollectiveNode`: how long an operation may wait for the other ranks.

    Raises:
        DefinitionError: `n` is not a whole number, 1 or more; or the function cannot be called so.
        TypeError: `function` is not callable.
    """
    from launchpad.collectives.node import CollectiveNode

    if not callable(function):
        raise TypeError(
            f"lp.ranks(function, n, …) needs a function or a class first, got {function!r}"
        )
    if not is_whole(n, 1):
        raise DefinitionError(
            f"lp.ranks({user_code.name_of(function)}, {n!r}): expected the number of ranks, 1 or more"
        )
    named = function
    while isinstance(named, functools.partial):
        named = named.func
    program = Program(getattr(named, "__name__", "ranks"))
    with program.group("rank", resources=resources, restart=restart):
        node = CollectiveNode(function, *args, backend=backend, timeout_s=timeout_s, **kwargs)
        program.add_node(node, replicas=n)
    return program


def checked_modules(names: Sequence[str]) -> tuple[str, ...]:
    """Return the names as a tuple. Raise DefinitionError if one of them cannot be the name of a module."""
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


def _no_node(given: object) -> str:
    """Return the text of the error for what is not a node."""
    kind = "PyNode" if inspect.isroutine(given) else "CourierNode"
    return f"add_node takes a node such as lp.{kind}(…), got {given!r}"


def _check_label(label: str) -> None:
    if not isinstance(label, str) or not _LABEL.fullmatch(label):
        raise DefinitionError(
            f"{label!r} cannot be a label: expected 1 to 63 letters, digits, underscores, dots or dashes,"
            " with no dot or dash at either end"
        )


def _line_of_caller() -> str:
    """Return the nearest line of the call stack outside this package, as `file.py:12`."""
    package = __name__.partition(".")[0]
    frame = sys._getframe(1)
    while frame.f_back and frame.f_globals.get("__name__", "").partition(".")[0] == package:
        frame = frame.f_back
    return f"{frame.f_code.co_filename}:{frame.f_lineno}"
