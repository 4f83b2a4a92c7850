"""A program as an SVG, laid out here: neither Graphviz nor JavaScript is needed.

In layers from left to right, as Sugiyama, Tagawa and Toda (1981) do it: a group stands to the right of those
that call it, and within its layer near them. A frame is laid out as one tall box. The one layout in pure
Python on PyPI (grandalf) has a copyleft licence, no release since 2023 and ten times the code; Graphviz,
which is better at large graphs, takes what `graph --format dot` prints.
"""

from __future__ import annotations

import html
from collections.abc import Sequence
from dataclasses import dataclass

from launchpad.graph_picture import CYLINDER, HEXAGON, ROUND, Box, HasGraph, Picture, picture_of

_LINE, _CHARACTER, _PAD = 18, 7.3, 14
_GAP_X, _GAP_Y = 104, 22
_LONGEST = 44
_SWEEPS = 4

_Unit = tuple[str, str]
"""A frame, or a box without one: its group, and the title of the frame."""


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


def svg(drawn: HasGraph | Picture) -> str:
    """An SVG of a program or a plan, as text.

    Example:
        Path("program.svg").write_text(svg(program))
    """
    picture = picture_of(drawn)
    unit_of = {box.id: unit for unit, boxes in picture.frames.items() for box in boxes}
    of_box = {box.id: _size(box) for box in picture.boxes}
    of_unit: dict[_Unit, _Area] = {}
    for unit, boxes in picture.frames.items():
        inside, title = [of_box[box.id] for box in boxes], unit[1]
        edge, above = (_PAD, _LINE) if title else (0, 0)
        width = max(*(place.width for place in inside), len(_cut(title)) * _CHARACTER)
        height = sum(place.height + _PAD for place in inside) - _PAD
        of_unit[unit] = _Area(width + 2 * edge, height + 2 * edge + above)
    pairs = ((unit_of[arrow.source], unit_of[arrow.target]) for arrow in picture.arrows)
    calls = {(a, b): None for a, b in pairs if a != b}
    layers = _layers(list(of_unit), list(calls))
    heights = [sum(of_unit[unit].height + _GAP_Y for unit in layer) for layer in layers]
    x, tall, parts = 0.0, max(heights, default=0), []
    for layer, height in zip(layers, heights, strict=True):
        y, wide = (tall - height + _GAP_Y) / 2, max(of_unit[unit].width for unit in layer)
        for unit in layer:
            place, title, edge = of_unit[unit], unit[1], 0
            place.x, place.y, place.width = x, y, wide
            y += place.height + _GAP_Y
            top = place.y
            if title:
                edge, top = _PAD, top + _PAD + _LINE
                parts.append(
                    f'<rect x="{x:g}" y="{place.y:g}" width="{wide:g}" height="{place.height:g}"'
                    ' fill="none" stroke="#888" stroke-dasharray="4"/>'
                )
                parts.append(_text(x + wide / 2, place.y + _LINE, title, "#888"))
            for box in picture.frames[unit]:
                at = of_box[box.id]
                at.x, at.y, at.width = x + edge, top, wide - 2 * edge
                top += at.height + _PAD
                parts.append(_drawn(box, at))
        x += wide + _GAP_X
    arrows = [
        _arrow(of_box[each.source], of_box[each.target], each.label) for each in picture.arrows
    ]
    head = (
        '<defs><marker id="head" viewBox="0 0 8 8" refX="8" refY="4" markerWidth="8" markerHeight="8"'
        ' orient="auto"><path d="M0,0L8,4L0,8z" fill="#888"/></marker></defs>'
    )
    width, height = max(x - _GAP_X, 0) + 48, tall + 16
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" width="{width:g}" height="{height:g}"'
            f' viewBox="-8 -8 {width:g} {height:g}" font-family="sans-serif" font-size="13"'
            ' text-anchor="middle">',
            f"<title>{html.escape(picture.name)}</title>{head}",
            *arrows,
            *parts,
            "</svg>",
        ]
    )


def _layers(units: Sequence[_Unit], calls: Sequence[tuple[_Unit, _Unit]]) -> list[list[_Unit]]:
    """Callers before those that they call, but for calls in a circle; neighbours on about one height."""
    callers: dict[_Unit, list[_Unit]] = {unit: [] for unit in units}
    beside: dict[_Unit, list[_Unit]] = {unit: [] for unit in units}
    for a, b in calls:
        callers[b].append(a)
        beside[a].append(b)
        beside[b].append(a)
    rank: dict[_Unit, int] = {}
    while left := [unit for unit in units if unit not in rank]:
        unit = min(left, key=lambda unit: sum(c not in rank for c in callers[unit]))
        rank[unit] = max((rank[c] + 1 for c in callers[unit] if c in rank), default=0)
    layers: list[list[_Unit]] = [[] for _ in range(max(rank.values(), default=-1) + 1)]
    for unit in units:
        layers[rank[unit]].append(unit)
    at = {unit: (n + 0.5) / len(layer) for layer in layers for n, unit in enumerate(layer)}
    for sweep in range(_SWEEPS):
        for layer in layers[:: -1 if sweep % 2 else 1]:
            means = {u: sum(at[v] for v in [u, *beside[u]]) / (len(beside[u]) + 1) for u in layer}
            layer.sort(key=means.__getitem__)
            at |= {unit: (n + 0.5) / len(layer) for n, unit in enumerate(layer)}
    return layers


def _size(box: Box) -> _Area:
    longest = max(len(_cut(line)) for line in box.lines)
    extra = _PAD if box.shape in (CYLINDER, HEXAGON) else 0
    return _Area(longest * _CHARACTER + 2 * _PAD + extra, _LINE * len(box.lines) + _PAD + extra)


def _drawn(box: Box, at: _Area) -> str:
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
    top = at.middle - _LINE * len(box.lines) / 2 + 13 + (4 if box.shape == CYLINDER else 0)
    lines = (_text(x + w / 2, top + n * _LINE, line) for n, line in enumerate(box.lines))
    return f'<path d="{path}" fill="white" stroke="#446"/>{"".join(lines)}'


def _text(x: float, y: float, text: str, color: str = "black") -> str:
    return f'<text x="{x:g}" y="{y:g}" fill="{color}">{html.escape(_cut(text))}</text>'


def _cut(text: str) -> str:
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 1]}…"


def _arrow(a: _Area, b: _Area, label: str) -> str:
    """Calls to the right run straight, those back to the left beside them, those within a layer in a bow."""
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
    path = f"M{x1:g},{y1:g}C{bends[0]:g},{y1:g} {bends[1]:g},{y2:g} {x2:g},{y2:g}"
    middle = (x1 + x2 + 3 * sum(bends)) / 8, (y1 + y2) / 2 - 3
    text = _text(*middle, label, "#888") if label else ""
    return f'<path d="{path}" fill="none" stroke="#888" marker-end="url(#head)"/>{text}'
