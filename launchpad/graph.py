"""The graph of a program as data, as text and as a picture."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from launchpad.handle import handles_in
from launchpad.nodes.base import Node

Groups = Mapping[str, Sequence[Node[Any]]]
"""Label → the nodes of that group."""


@dataclass(frozen=True)
class Edge:
    """One node holds the handle of another and can call it.

    Attributes:
        source: The worker that holds the handle, `actor-3`.
        target: The worker it is a handle of, `learner-0`.
        path: Where in the source's arguments the handle is, `actor-3.args[0]`.
    """

    source: str
    target: str
    path: str


@dataclass(frozen=True)
class Vertex:
    """One node."""

    name: str
    label: str
    kind: str
    added_at: str


@dataclass(frozen=True)
class Graph:
    """Nodes and edges by name."""

    name: str
    nodes: tuple[Vertex, ...]
    edges: tuple[Edge, ...]

    @classmethod
    def of(cls, name: str, groups: Groups) -> Graph:
        """The graph of a program's groups; a handle of a node outside them is an edge to `?`."""
        nodes: list[tuple[str, str, Node[Any]]] = []  # label, name, node
        for label, of_group in groups.items():
            for index, node in enumerate(of_group):
                name_of_node = f"{label}-{index}"
                nodes.append((label, name_of_node, node))
                members = enumerate(node.members())
                nodes += [(label, f"{name_of_node}.{i}", member) for i, member in members]
        names = {id(node): worker for _, worker, node in nodes}
        vertices = tuple(
            Vertex(worker, label, repr(node), node.added_at)
            for label, worker, node in nodes
            if not node.members()
        )
        edges = tuple(
            Edge(worker, names.get(id(found.value.node), "?"), found.path)
            for _, worker, node in nodes
            for found in handles_in(node, worker)
        )
        return cls(name, vertices, edges)

    def to_dict(self) -> dict[str, Any]:
        """Plain dicts and lists, ready for JSON."""
        return asdict(self)

    def to_mermaid(self) -> str:
        """A Mermaid flowchart with one box per group, and one arrow for all edges between two groups."""
        titles, edges = self._by_group()
        lines = ["flowchart LR"]
        lines += [f'    {_box(label)}["{title}"]' for label, title in titles.items()]
        lines += [f"    {_box(a)} --> {_box(b)}" for a, b in edges]
        return "\n".join(lines)

    def __str__(self) -> str:
        titles, edges = self._by_group()
        lines = [f"program {self.name!r}: {len(self.nodes)} nodes, {len(self.edges)} edges"]
        for label, title in titles.items():
            targets = [target for source, target in edges if source == label]
            lines.append(f"  {title} → {', '.join(targets)}" if targets else f"  {title}")
        return "\n".join(lines)

    def _by_group(self) -> tuple[dict[str, str], list[tuple[str, str]]]:
        """Label → what its group is, in a few words; and the pairs of groups with an edge."""
        kinds: dict[str, list[str]] = {}
        for node in self.nodes:
            kinds.setdefault(node.label, []).append(node.kind)
        titles = {
            label: f"{label} ×{len(those)}: {', '.join(dict.fromkeys(those))}"
            for label, those in kinds.items()
        }
        label_of = {node.name: node.label for node in self.nodes}
        pairs = (
            (label_of[e.source], label_of[e.target]) for e in self.edges if e.target in label_of
        )
        return titles, list(dict.fromkeys(pairs))


def _box(label: str) -> str:
    """A Mermaid identifier: letters and digits only, so that no label is Mermaid syntax."""
    return "g_" + "".join(c if c.isalnum() else f"_{ord(c):x}_" for c in label)
