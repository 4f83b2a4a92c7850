"""A program as an SVG, laid out here: neither Graphviz nor JavaScript is needed.

In layers from left to right, as Sugiyama, Tagawa and Toda (1981) do it: a group stands to the right of those
that call it, and within its layer near them. A frame is laid out as one tall box, and an arrow that skips a
layer has a passage between its boxes. The one layout in pure Python on PyPI (grandalf) has a copyleft
licence, no release since 2023 and ten times the code; Graphviz, which is better at large graphs, takes what
`graph --format dot` prints.

A program that runs is drawn with a look for each box and arrow, which says how it is (`view/live_graph.py`).
"""

from __future__ import annotations

import html
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import TypeVar

from launchpad.graph.picture import CYLINDER, HEXAGON, ROUND, Box, HasGraph, Picture, picture_of

_LINE, _CHARACTER, _PAD = 18, 7.3, 14
_GAP_X, _GAP_Y = 104, 22
_LONGEST = 44
_SWEEPS = 4
_ONE_COLUMN = 12
"""So many boxes of a frame stand below each other; more are beside each other, too."""

_T = TypeVar("_T")
_Unit = tuple[str, str]
"""A frame, or a box without one: its group, and the title of the frame."""


@dataclass(frozen=True)
class BoxStyle:
    """How a box looks that does not look as all others do.

    Attributes:
        note: A last line in it.
        title: What is shown when the mouse is over it.
        key: Its attribute `data-key`, for what reacts to a click.
    """

    fill: str = "white"
    note: str = ""
    title: str = ""
    key: str = ""


@dataclass(frozen=True)
class ArrowStyle:
    """How an arrow looks that does not look as all others do.

    Attributes:
        label: One line or two, in the place of its own.
    """

    color: str = "#888"
    width: float = 1.0
    label: str = ""
    title: str = ""
    key: str = ""


_PLAIN_BOX, _PLAIN_ARROW = BoxStyle(), ArrowStyle()


@dataclass(frozen=True)
class Styles:
    """Box → how it looks; source and target of an arrow → how that looks; frame → its `data-key`."""

    boxes: Mapping[str, BoxStyle] = field(default_factory=dict)
    arrows: Mapping[tuple[str, str], ArrowStyle] = field(default_factory=dict)
    frames: Mapping[str, str] = field(default_factory=dict)


@dataclass
class _Area:
    """Where something is drawn, in px from the top left corner."""

    width: float
    height: float
    x: float = 0.0
    y: float = 0.0

    @property
    def middle(self) -> float:
        return self.y + self.height / 2


def svg(drawn: HasGraph | Picture, styles: Styles | None = None) -> str:
    """An SVG of a program or a plan, as text.

    Example:
        Path("program.svg").write_text(svg(program))
    """
    picture, styles = picture_of(drawn), styles or Styles()
    unit_of = {box.id: unit for unit, boxes in picture.frames.items() for box in boxes}
    of_box = {box.id: _size(box, styles.boxes.get(box.id, _PLAIN_BOX)) for box in picture.boxes}
    of_unit: dict[_Unit, _Area] = {}
    for unit, boxes in picture.frames.items():
        inside, title = [of_box[box.id] for box in boxes], unit[1]
        edge, above = (_PAD, _LINE) if title else (0, 0)
        columns = _columns(len(boxes))
        widest = max(place.width for place in inside)
        width = max((widest + _PAD) * columns - _PAD, len(_cut(title)) * _CHARACTER)
        height = sum(max(p.height for p in row) + _PAD for row in _rows(inside)) - _PAD
        of_unit[unit] = _Area(width + 2 * edge, height + 2 * edge + above)
    calls = Counter((unit_of[arrow.source], unit_of[arrow.target]) for arrow in picture.arrows)
    layers, passages = _layers(list(of_unit), [(a, b) for a, b in calls if a != b])
    of_unit |= {unit: _Area(0, 2 * _LINE) for passed in passages.values() for unit in passed}
    heights = [sum(of_unit[unit].height + _GAP_Y for unit in layer) for layer in layers]
    labels_ = (line for style in styles.arrows.values() for line in style.label.split("\n"))
    longest = max(map(len, labels_), default=0)
    gap = max(_GAP_X, min(longest, _LONGEST) * _CHARACTER + 2 * _PAD)
    x, tall, parts = 0.0, max(heights, default=0), []
    for layer, height in zip(layers, heights, strict=True):
        y, wide = (tall - height + _GAP_Y) / 2, max(of_unit[unit].width for unit in layer)
        for unit in layer:
            place, title, edge = of_unit[unit], unit[1], 0
            place.x, place.y, place.width = x, y, wide
            y += place.height + _GAP_Y
            if unit not in picture.frames:
                continue
            top = place.y
            if title:
                edge, top = _PAD, top + _PAD + _LINE
                parts.append(
                    f'<rect x="{x:g}" y="{place.y:g}" width="{wide:g}" height="{place.height:g}"'
                    ' fill="none" stroke="#888" stroke-dasharray="4"/>'
                )
                name = _text(x + wide / 2, place.y + _LINE, title, "#888")
                parts.append(_keyed(name, styles.frames.get(unit[0], "")))
            boxes = picture.frames[unit]
            columns = _columns(len(boxes))
            column = (wide - 2 * edge + _PAD) / columns
            for row in _rows(boxes):
                for n, box in enumerate(row):
                    at = of_box[box.id]
                    at.x, at.y, at.width = x + edge + n * column, top, column - _PAD
                    parts.append(_drawn(box, at, styles.boxes.get(box.id, _PLAIN_BOX)))
                top += max(of_box[box.id].height for box in row) + _PAD
        x += wide + gap
    arrows, labels = [], []
    for arrow in picture.arrows:
        style = styles.arrows.get((arrow.source, arrow.target), ArrowStyle(label=arrow.label))
        ends = unit_of[arrow.source], unit_of[arrow.target]
        passed = [of_unit[unit] for unit in passages.get(ends, ())]
        path, label = _arrow(
            of_box[arrow.source], passed, of_box[arrow.target], style, is_alone=calls[ends] == 1
        )
        arrows.append(path)
        labels += label
    head = (
        '<defs><marker id="head" viewBox="0 0 8 8" refX="8" refY="4" markerWidth="8" markerHeight="8"'
        ' orient="auto" markerUnits="userSpaceOnUse"><path d="M0,0L8,4L0,8z" fill="#888"/></marker>'
        '<marker id="thick" viewBox="0 0 8 8" refX="6" refY="4" markerWidth="14" markerHeight="14"'
        ' orient="auto" markerUnits="userSpaceOnUse"><path d="M0,0L8,4L0,8z" fill="context-stroke"/></marker>'
        "</defs>"
    )
    width, height = max(x - gap, 0) + 48, tall + 16
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" width="{width:g}" height="{height:g}"'
            f' viewBox="-8 -8 {width:g} {height:g}" font-family="sans-serif" font-size="13"'
            ' text-anchor="middle">',
            f"<title>{html.escape(picture.name)}</title>{head}",
            *arrows,
            *parts,
            *labels,
            "</svg>",
        ]
    )


def _columns(n: int) -> int:
    """In how many columns the boxes of a frame stand."""
    return 1 if n <= _ONE_COLUMN else math.ceil(math.sqrt(n / 3))


def _rows(of_frame: Sequence[_T]) -> list[Sequence[_T]]:
    columns = _columns(len(of_frame))
    return [of_frame[n : n + columns] for n in range(0, len(of_frame), columns)]


def _keyed(part: str, key: str, title: str = "") -> str:
    """A part that reacts to the mouse, if it is to."""
    if not (key or title):
        return part
    shown = f"<title>{html.escape(title)}</title>" if title else ""
    return f'<g data-key="{html.escape(key)}">{shown}{part}</g>'


def _layers(
    units: Sequence[_Unit], calls: Sequence[tuple[_Unit, _Unit]]
) -> tuple[list[list[_Unit]], dict[tuple[_Unit, _Unit], list[_Unit]]]:
    """Callers before those that they call, but for calls in a circle; neighbours on about one height.

    In the layers are passages, too: units for calls that skip some. Call → those that it goes through.
    """
    callers: dict[_Unit, list[_Unit]] = {unit: [] for unit in units}
    beside: dict[_Unit, list[_Unit]] = {unit: [] for unit in units}
    for a, b in calls:
        callers[b].append(a)
    rank: dict[_Unit, int] = {}
    while left := [unit for unit in units if unit not in rank]:
        unit = min(left, key=lambda unit: sum(c not in rank for c in callers[unit]))
        rank[unit] = max((rank[c] + 1 for c in callers[unit] if c in rank), default=0)
    passages: dict[tuple[_Unit, _Unit], list[_Unit]] = {}
    for a, b in calls:
        step = 1 if rank[a] < rank[b] else -1
        skipped = range(rank[a] + step, rank[b], step)
        passages[a, b] = [(f"{a} {b}", f"{n}") for n in skipped]
        rank |= zip(passages[a, b], skipped, strict=True)
        for one, other in pairwise([a, *passages[a, b], b]):
            beside.setdefault(one, []).append(other)
            beside.setdefault(other, []).append(one)
    layers: list[list[_Unit]] = [[] for _ in range(max(rank.values(), default=-1) + 1)]
    for unit in [*units, *(unit for passed in passages.values() for unit in passed)]:
        layers[rank[unit]].append(unit)
    at = {unit: (n + 0.5) / len(layer) for layer in layers for n, unit in enumerate(layer)}
    for sweep in range(_SWEEPS):
        for layer in layers[:: -1 if sweep % 2 else 1]:
            means = {u: sum(at[v] for v in [u, *beside[u]]) / (len(beside[u]) + 1) for u in layer}
            layer.sort(key=means.__getitem__)
            at |= {unit: (n + 0.5) / len(layer) for n, unit in enumerate(layer)}
    return layers, passages


def _lines(box: Box, style: BoxStyle) -> list[str]:
    return [*box.lines, *filter(None, [style.note])]


def _size(box: Box, style: BoxStyle) -> _Area:
    lines = _lines(box, style)
    longest = max(len(_cut(line)) for line in lines)
    extra = _PAD if box.shape in (CYLINDER, HEXAGON) else 0
    return _Area(longest * _CHARACTER + 2 * _PAD + extra, _LINE * len(lines) + _PAD + extra)


def _drawn(box: Box, at: _Area, style: BoxStyle) -> str:
    shown = _lines(box, style)
    x, y, w, h = at.x, at.y, at.width, at.height
    if box.shape == HEXAGON:
        path = f"M{x:g},{y + h / 2:g}l{_PAD},{-h / 2:g}h{w - 2 * _PAD:g}l{_PAD},{h / 2:g}"
        path += f"l{-_PAD},{h / 2:g}h{2 * _PAD - w:g}z"
    elif box.shape == CYLINDER:
        lid, side = _PAD / 2, h - _PAD
        arc = f"a{w / 2:g},{lid:g} 0 0,1"
        path = f"M{x:g},{y + lid:g}{arc} {w:g},0{arc} {-w:g},0v{side:g}"
        path += f"a{w / 2:g},{lid:g} 0 0,0 {w:g},0v{-side:g}"
    else:
        r = 10 if box.shape == ROUND else 0
        corner = f"a{r},{r} 0 0,1"
        path = f"M{x + r:g},{y:g}h{w - 2 * r:g}{corner} {r},{r}v{h - 2 * r:g}{corner} {-r},{r}"
        path += f"h{2 * r - w:g}{corner} {-r},{-r}v{2 * r - h:g}{corner} {r},{-r}z"
    top = at.middle - _LINE * len(shown) / 2 + 13 + (4 if box.shape == CYLINDER else 0)
    lines = (_text(x + w / 2, top + n * _LINE, line) for n, line in enumerate(shown))
    part = f'<path d="{path}" fill="{style.fill}" stroke="#446"/>{"".join(lines)}'
    return _keyed(part, style.key, style.title)


def _text(x: float, y: float, text: str, color: str = "black", *, halo: bool = False) -> str:
    behind = ' stroke="white" stroke-width="4" paint-order="stroke"' if halo else ""
    return f'<text x="{x:g}" y="{y:g}" fill="{color}"{behind}>{html.escape(_cut(text))}</text>'


def _cut(text: str) -> str:
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 1]}…"


def _arrow(
    a: _Area, passed: Sequence[_Area], b: _Area, style: ArrowStyle, *, is_alone: bool
) -> tuple[str, list[str]]:
    """The line, through all that are `passed`, and what is written beside it.

    Calls to the right run straight, those back to the left beside them, those within a layer in a bow. The
    text is in the first passage, unless other arrows go through it.
    """
    right, bend = a.x + a.width, _GAP_X / 2
    if right < b.x:
        x1, y1, x2, y2 = right, a.middle - 4, b.x, b.middle - 4
        bends = x1 + bend, x2 - bend
    elif b.x + b.width < a.x:
        x1, y1, x2, y2 = a.x, a.middle + 5, b.x + b.width, b.middle + 5
        bends = x1 - bend, x2 + bend
    else:
        x1, y1, x2, y2 = right, a.middle - 5, b.x + b.width, b.middle + 5
        bends = max(x1, x2) + bend, max(x1, x2) + bend
    path, middle = f"M{x1:g},{y1:g}", ((x1 + x2 + 3 * sum(bends)) / 8, (y1 + y2) / 2)
    for n, area in enumerate(passed):
        sides = (area.x, area.x + area.width) if bends[0] > x1 else (area.x + area.width, area.x)
        bend = bends[0] - x1
        path += f"C{x1 + bend:g},{y1:g} {sides[0] - bend:g},{area.middle:g} {sides[0]:g},{area.middle:g}"
        path += f"H{sides[1]:g}"
        if n == 0:
            between = (sides if is_alone else (x1, sides[0])), (area.middle if is_alone else y1)
            middle = sum(between[0]) / 2, (between[1] + area.middle) / 2
        bends, x1, y1 = (sides[1] + bend, bends[1]), sides[1], area.middle
    path += f"C{bends[0]:g},{y1:g} {bends[1]:g},{y2:g} {x2:g},{y2:g}"
    x, y = middle
    thicker = style.width - 1  # the first line above the arrow, the second below
    rows = zip((y - 3 - thicker / 2, y + 15 + thicker), style.label.split("\n"), strict=False)
    labels = [_text(x, row, line, "#555", halo=True) for row, line in rows if line]
    head = "head" if style.width == 1 else "thick"
    part = f'<path d="{path}" fill="none" stroke="{style.color}" stroke-width="{style.width:g}"'
    return _keyed(f'{part} marker-end="url(#{head})"/>', style.key, style.title), labels
