"""Graph: the nodes and edges of a program, as data and as text. `picture` draws it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from launchpad.courier.light_dataclass import dataclass
from launchpad.handle import handles_in
from launchpad.nodes.base import Node

Groups = Mapping[str, Sequence[Node[Any]]]
"""Maps the label of each group to its nodes."""


@dataclass(frozen=True)
class Edge:
    """An edge of the graph: one node holds the handle of another node, and can call it.

    Example:
        for edge in program.graph().edges:
            print(f"{edge.source} can call {edge.target}, by {edge.path}")

    Attributes:
        source: The worker that holds the handle, for example `actor-3`.
        target: The worker that the handle leads to, for example `learner-0`.
        path: The path to the handle in the source's arguments, for example `actor-3.args[0]`.
    """

    source: str
    target: str
    path: str


@dataclass(frozen=True)
class Vertex:
    """A node of the graph.

    Attributes:
        name: The name of the worker, for example `actor-3`. In a colocation, it has a second number:
            `trainer-0.1`.
        label: The label of the node's group.
        kind: The kind of node as a person would write it, for example `CourierNode(Actor)`.
        added_at: The line of code that added the node to the program, for example `train.py:12`.
        colocation: The kind of colocation that the node is in. Empty if it is not in a colocation.
    """

    name: str
    label: str
    kind: str
    added_at: str
    colocation: str = ""


@dataclass(frozen=True)
class Graph:
    """The nodes and edges of a program, by name.

    Example:
        graph = program.graph()
        print(graph)
        text = json.dumps(graph.to_dict())
    """

    name: str
    nodes: tuple[Vertex, ...]
    edges: tuple[Edge, ...]

    @classmethod
    def of(cls, name: str, groups: Groups) -> Graph:
        """Return the graph of a program's groups. A handle of a node outside them becomes an edge to `?`."""
        nodes: dict[str, Node[Any]] = {}
        vertices = []
        for label, of_group in groups.items():
            for index, node in enumerate(of_group):
                worker = f"{label}-{index}"
                members = {f"{worker}.{i}": member for i, member in enumerate(node.members())}
                nodes |= {worker: node, **members}
                colocation = type(node).__name__ if members else ""
                vertices += [
                    Vertex(name_of_part, label, repr(part), part.added_at, colocation)
                    for name_of_part, part in (members or {worker: node}).items()
                ]
        names = {id(node): worker for worker, node in nodes.items()}
        edges = tuple(
            Edge(worker, names.get(id(place.value.node), "?"), place.path)
            for worker, node in nodes.items()
            for place in handles_in(node, worker)
        )
        return cls(name, tuple(vertices), edges)

    def to_dict(self) -> dict[str, Any]:
        """Return the graph as plain dicts and lists, ready for JSON."""
        return asdict(self)

    def __str__(self) -> str:
        kinds: dict[str, list[str]] = {}
        for node in self.nodes:
            kinds.setdefault(node.label, []).append(node.kind)
        label_of = {node.name: node.label for node in self.nodes}
        pairs = [
            (label_of.get(e.source, ""), label_of[e.target])
            for e in self.edges
            if e.target in label_of
        ]
        lines = [f"program {self.name!r}: {len(self.nodes)} nodes, {len(self.edges)} edges"]
        for label, kinds_of_label in kinds.items():
            title = f"{label} ×{len(kinds_of_label)}: {', '.join(dict.fromkeys(kinds_of_label))}"
            targets = dict.fromkeys(target for source, target in pairs if source == label)
            lines.append(f"  {title} → {', '.join(targets)}" if targets else f"  {title}")
        return "\n".join(lines)
