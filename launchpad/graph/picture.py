"""Picture: a drawing of a program, with one box per group, and one arrow for all edges between two boxes.

    program, plan ── graph() ──▶ Graph ── Picture.of ──▶ Picture ──▶ mermaid, dot, svg.svg
                                                           └──▶ the record of a run ──▶ Picture

A group of colocations is a frame with a box for each node of a colocation. A box's shape shows the kind of
node:

    nodes that are called       round          CourierNode, and all kinds that are not listed here
    nodes that only call        a rectangle    PyNode, PyClassNode
    nodes that keep items       a cylinder     QueueNode, WorkQueueNode, ReplayNode, ReverbNode
    ranks                       a hexagon      CollectiveNode
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from typing import Any, Protocol

from launchpad.courier.light_dataclass import dataclass
from launchpad.graph.graph import Graph

ROUND = "round"
RECTANGLE = "rectangle"
CYLINDER = "cylinder"
HEXAGON = "hexagon"
_SHAPES = {
    "PyNode": RECTANGLE,
    "PyClassNode": RECTANGLE,
    "QueueNode": CYLINDER,
    "WorkQueueNode": CYLINDER,
    "ReplayNode": CYLINDER,
    "ReverbNode": CYLINDER,
    "CollectiveNode": HEXAGON,
}
_MERMAID = {
    ROUND: ("(", ")"),
    RECTANGLE: ("[", "]"),
    CYLINDER: ("[(", ")]"),
    HEXAGON: ("{{", "}}"),
}
_DOT = {
    ROUND: "shape=box, style=rounded",
    RECTANGLE: "shape=box",
    CYLINDER: "shape=cylinder",
    HEXAGON: "shape=hexagon",
}
_ENTITIES = str.maketrans(
    {"#": "#35;", "&": "#amp;", '"': "#quot;", "<": "#lt;", ">": "#gt;", "`": "#96;"}
)
_KEYWORD = re.compile(r"kwargs\['(\w+)'\]|(?!args\[|kwargs|constructor)(\w+)")
_NAMED = 3


class HasGraph(Protocol):
    """A Program, or a LaunchPlan."""

    def graph(self) -> Graph: ...


@dataclass(frozen=True)
class Box:
    """A box for the nodes of a group. In a group of colocations, it is for the nodes with the same number.

    Attributes:
        id: The box's group, for example `actor`. In a colocation, it has a number: `trainer.1`.
        title: The box's title. Empty in a frame, because the frame has the title.
        kind: The kind of node that the box stands for, for example `CourierNode(Actor)`.
        frame: The title of the frame around the box. Empty if there is no frame.
    """

    id: str
    group: str
    title: str
    kind: str
    frame: str = ""

    @property
    def shape(self) -> str:
        return _SHAPES.get(self.kind.partition("(")[0], ROUND)

    @property
    def lines(self) -> list[str]:
        """The lines of the box's text."""
        return [line for line in (self.title, self.kind) if line]


@dataclass(frozen=True)
class Arrow:
    """An arrow from one box to another box, whose handles the first one holds.

    `label` is the keyword argument that holds the handles, for example `peers`. It is empty if no keyword
    argument holds them, or if the keyword is the name of the target's group.
    """

    source: str
    target: str
    label: str = ""


@dataclass(frozen=True)
class Picture:
    """A picture: boxes, and arrows from each box to the boxes whose handles it holds."""

    name: str
    boxes: tuple[Box, ...]
    arrows: tuple[Arrow, ...]

    @classmethod
    def of(cls, graph: Graph) -> Picture:
        """Return the picture of a graph."""
        # Maps each group to its workers. A colocation counts as one worker.
        replicas: dict[str, set[str]] = {}
        # Maps each group, and number in a colocation, to the kinds of the nodes.
        kinds: dict[tuple[str, str], dict[str, None]] = {}
        colocations: dict[str, str] = {}
        box_of = {}
        for node in graph.nodes:
            index, _, number = node.name.removeprefix(f"{node.label}-").partition(".")
            replicas.setdefault(node.label, set()).add(index)
            kinds.setdefault((node.label, number), {})[node.kind] = None
            colocations.setdefault(node.label, "")
            colocations[node.label] = colocations[node.label] or node.colocation
            box_of[node.name] = ".".join(filter(None, (node.label, number)))
        boxes = []
        for (group, number), of_box in kinds.items():
            count = len(replicas[group])
            title = f"{group} ×{count}" if count > 1 else group
            kind_names = _listed(of_box)
            frame = f"{title}: {colocations[group]}" if colocations[group] else ""
            id_ = ".".join(filter(None, (group, number)))
            boxes.append(Box(id_, group, "" if frame else title, kind_names, frame))
        labels: dict[tuple[str, str], dict[str, None]] = {}
        for edge in graph.edges:
            if edge.source in box_of and edge.target in box_of:
                source = box_of[edge.source]
                target = box_of[edge.target]
                of_arrow = labels.setdefault((source, target), {})
                keyword = _KEYWORD.match(edge.path.removeprefix(f"{edge.source}."))
                label = (keyword[1] or keyword[2]) if keyword else ""
                if label and label != target:
                    of_arrow[label] = None
        arrows = tuple(Arrow(*pair, _listed(of_arrow)) for pair, of_arrow in labels.items())
        return cls(graph.name, tuple(boxes), arrows)

    @classmethod
    def from_dict(cls, plain: Mapping[str, Any]) -> Picture:
        """Return the picture that `dataclasses.asdict` turned into this dict. The dict may come from JSON."""
        boxes = tuple(Box(**box) for box in plain["boxes"])
        return cls(plain["name"], boxes, tuple(Arrow(**arrow) for arrow in plain["arrows"]))

    @property
    def frames(self) -> dict[tuple[str, str], list[Box]]:
        """Maps each group, with the title of its frame, to its boxes. Without a frame, the title is empty."""
        frames: dict[tuple[str, str], list[Box]] = {}
        for box in self.boxes:
            frames.setdefault((box.group, box.frame), []).append(box)
        return frames


def picture_of(drawn: HasGraph | Picture) -> Picture:
    """Return the picture of a program or of a plan."""
    return drawn if isinstance(drawn, Picture) else Picture.of(drawn.graph())


def mermaid(drawn: HasGraph | Picture) -> str:
    """Return a Mermaid flowchart, which GitHub, JupyterLab and most editors draw.

    Example:
        print(mermaid(program))
    """
    picture = picture_of(drawn)
    lines = ["flowchart LR"]
    for (group, frame), boxes in picture.frames.items():
        pad = "        " if frame else "    "
        if frame:
            lines.append(f'    subgraph {_identifier(group)}_["{_escaped(frame)}"]')
        for box in boxes:
            opening, closing = _MERMAID[box.shape]
            text = "<br/>".join(map(_escaped, box.lines))
            lines.append(f'{pad}{_identifier(box.id)}{opening}"{text}"{closing}')
        if frame:
            lines.append("    end")
    for arrow in picture.arrows:
        label = f'|"{_escaped(arrow.label)}"|' if arrow.label else ""
        lines.append(f"    {_identifier(arrow.source)} -->{label} {_identifier(arrow.target)}")
    return "\n".join(lines)


def dot(drawn: HasGraph | Picture) -> str:
    """Return a graph for Graphviz: `dot -Tpdf` makes a picture of it."""
    picture = picture_of(drawn)
    lines = [f"digraph {_quoted(picture.name)} {{", "    rankdir=LR; node [fontname=Helvetica];"]
    for (group, frame), boxes in picture.frames.items():
        pad = "        " if frame else "    "
        if frame:
            lines.append(f"    subgraph {_quoted(f'cluster_{group}')} {{ label={_quoted(frame)};")
        for box in boxes:
            text = "\\n".join(_quoted(line)[1:-1] for line in box.lines)
            lines.append(f'{pad}{_quoted(box.id)} [label="{text}", {_DOT[box.shape]}];')
        if frame:
            lines.append("    }")
    for arrow in picture.arrows:
        label = f" [label={_quoted(arrow.label)}]" if arrow.label else ""
        lines.append(f"    {_quoted(arrow.source)} -> {_quoted(arrow.target)}{label};")
    return "\n".join([*lines, "}"])


def _identifier(label: str) -> str:
    """Return a Mermaid identifier. It has only letters and digits, so that no label is Mermaid syntax."""
    return "g_" + "".join(c if c.isalnum() else f"_{ord(c):x}_" for c in label)


def _escaped(text: str) -> str:
    """Escape a text for Mermaid's quotes."""
    return text.translate(_ENTITIES)


def _listed(names: Collection[str]) -> str:
    """Join the first names, followed by an ellipsis if there are more."""
    shown_names = list(names)[:_NAMED]
    if len(names) > _NAMED:
        shown_names.append("…")
    return ", ".join(shown_names)


def _quoted(text: str) -> str:
    backslashed = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{backslashed}"'
