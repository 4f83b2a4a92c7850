"""A drawing of a program as an SVG. The layout is computed here, without Graphviz or JavaScript.

The layout has layers from left to right, as in Sugiyama, Tagawa and Toda (1981). A group is to the right of
the groups that call it. Within its layer, it is at a similar height as these groups. A frame is laid out as
one tall box. An arrow that skips a layer has a passage between the boxes of this layer.

The only pure Python package for this on PyPI (grandalf) has a copyleft licence, no release since 2023 and ten
times the code. Graphviz is better at large graphs, and reads what `graph --format dot` prints.

For a running program, each box and arrow is drawn in a style that shows its state (`view/live_graph.py`).
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

_LINE = 18
_CHARACTER = 7.3
_PAD = 14
_GAP_X = 104
_GAP_Y = 22
_LONGEST = 44
_SWEEPS = 4
_ONE_COLUMN = 12
"""The most boxes that a frame has in a single column. If it has more boxes, it has several columns."""

_T = TypeVar("_T")
_Unit = tuple[str, str]
"""A frame, or a box without a frame: its group, and the title of the frame."""


@dataclass(frozen=True)
class BoxStyle:
    """The style of a box that looks different from the others.

    Attributes:
        note: An extra last line in the box.
        title: The text that is shown while the mouse is over the box.
        key: The box's attribute `data-key`, for code that reacts to clicks.
    """

    fill: str = "white"
    note: str = ""
    title: str = ""
    key: str = ""


@dataclass(frozen=True)
class ArrowStyle:
    """The style of an arrow that looks different from the others.

    Attributes:
        label: One or two lines that replace the arrow's own label.
    """

    color: str = "#888"
    width: float = 1.0
    label: str = ""
    title: str = ""
    key: str = ""


_PLAIN_BOX = BoxStyle()
_ARROW_HEADS = (
    '<defs><marker id="head" viewBox="0 0 8 8" refX="8" refY="4" markerWidth="8" markerHeight="8"'
    ' orient="auto" markerUnits="userSpaceOnUse"><path d="M0,0L8,4L0,8z" fill="#888"/></marker>'
    '<marker id="thick" viewBox="0 0 8 8" refX="6" refY="4" markerWidth="14" markerHeight="14"'
    ' orient="auto" markerUnits="userSpaceOnUse"><path d="M0,0L8,4L0,8z" fill="context-stroke"/></marker>'
    "</defs>"
)


@dataclass(frozen=True)
class Styles:
    """The styles of boxes and arrows, and the `data-key` of frames.

    The keys of these dicts are the id of a box, the source and target of an arrow, and the group of a frame.
    """

    boxes: Mapping[str, BoxStyle] = field(default_factory=dict)
    arrows: Mapping[tuple[str, str], ArrowStyle] = field(default_factory=dict)
    frames: Mapping[str, str] = field(default_factory=dict)


@dataclass
class _Area:
    """The area in which something is drawn, in px from the top left corner."""

    width: float
    height: float
    x: float = 0.0
    y: float = 0.0

    @property
    def middle(self) -> float:
        return self.y + self.height / 2


def svg(drawn: HasGraph | Picture, styles: Styles | None = None) -> str:
    """Draw a program or a plan as an SVG, and return the SVG's text.

    Example:
        Path("program.svg").write_text(svg(program))
    """
    return _Drawing(picture_of(drawn), styles or Styles()).text()


class _Drawing:
    """The drawing of one picture: it computes the sizes of its parts, then their places, then the text."""

    def __init__(self, picture: Picture, styles: Styles) -> None:
        self._picture = picture
        self._styles = styles
        self._unit_of: dict[str, _Unit] = {}
        self._boxes: dict[str, _Area] = {}
        self._units: dict[_Unit, _Area] = {}
        for unit, boxes in picture.frames.items():
            for box in boxes:
                self._unit_of[box.id] = unit
                self._boxes[box.id] = _size(box, self._style(box))
            self._units[unit] = self._size_of_unit(unit, [self._boxes[box.id] for box in boxes])
        ends = (
            (self._unit_of[arrow.source], self._unit_of[arrow.target]) for arrow in picture.arrows
        )
        self._calls = Counter(ends)
        between_units = [(a, b) for a, b in self._calls if a != b]
        self._layers, self._passages = _layers(list(self._units), between_units)
        for units in self._passages.values():
            self._units |= {unit: _Area(0, 2 * _LINE) for unit in units}

    def text(self) -> str:
        width, height = self._place_units()
        parts: list[str] = []
        for layer in self._layers:
            for unit in layer:
                if unit in self._picture.frames:
                    parts += self._drawn_unit(unit)
        arrows, labels = self._drawn_arrows()
        return "\n".join(
            [
                f'<svg xmlns="http://www.w3.org/2000/svg" width="{width:g}" height="{height:g}"'
                f' viewBox="-8 -8 {width:g} {height:g}" font-family="sans-serif" font-size="13"'
                ' text-anchor="middle">',
                f"<title>{html.escape(self._picture.name)}</title>{_ARROW_HEADS}",
                *arrows,
                *parts,
                *labels,
                "</svg>",
            ]
        )

    def _style(self, box: Box) -> BoxStyle:
        return self._styles.boxes.get(box.id, _PLAIN_BOX)

    def _size_of_unit(self, unit: _Unit, boxes: Sequence[_Area]) -> _Area:
        """Measure a unit: a frame with its boxes in rows below its title, or a box without a frame."""
        _, title = unit
        widest = max(box.width for box in boxes)
        width = (widest + _PAD) * _columns(len(boxes)) - _PAD
        width = max(width, len(_cut(title)) * _CHARACTER)
        height = sum(max(box.height for box in row) + _PAD for row in _rows(boxes)) - _PAD
        if title:
            return _Area(width + 2 * _PAD, height + 2 * _PAD + _LINE)
        return _Area(width, height)

    def _place_units(self) -> tuple[float, float]:
        """Place the units, layer by layer from the left. Return the size of the whole drawing."""
        heights = []
        for layer in self._layers:
            heights.append(sum(self._units[unit].height + _GAP_Y for unit in layer))
        tallest = max(heights, default=0)
        gap = self._gap_between_layers()
        x = 0.0
        for layer, height in zip(self._layers, heights, strict=True):
            y = (tallest - height + _GAP_Y) / 2
            width = max(self._units[unit].width for unit in layer)
            for unit in layer:
                area = self._units[unit]
                area.x = x
                area.y = y
                area.width = width
                y += area.height + _GAP_Y
            x += width + gap
        return max(x - gap, 0) + 48, tallest + 16

    def _gap_between_layers(self) -> float:
        """Return a gap between layers that has room for the longest label of an arrow."""
        labels = [style.label for style in self._styles.arrows.values()]
        longest = max((len(line) for label in labels for line in label.split("\n")), default=0)
        return max(_GAP_X, min(longest, _LONGEST) * _CHARACTER + 2 * _PAD)

    def _drawn_unit(self, unit: _Unit) -> list[str]:
        """Place and draw a unit: a frame and its boxes, or a box without a frame."""
        group, title = unit
        boxes = self._picture.frames[unit]
        area = self._units[unit]
        parts = []
        edge = 0
        y = area.y
        if title:
            edge = _PAD
            y += _PAD + _LINE
            parts.append(
                f'<rect x="{area.x:g}" y="{area.y:g}" width="{area.width:g}" height="{area.height:g}"'
                ' fill="none" stroke="#888" stroke-dasharray="4"/>'
            )
            text = _text(area.x + area.width / 2, area.y + _LINE, title, "#888")
            parts.append(_keyed(text, self._styles.frames.get(group, "")))
        column = (area.width - 2 * edge + _PAD) / _columns(len(boxes))
        for row in _rows(boxes):
            for n, box in enumerate(row):
                at = self._boxes[box.id]
                at.x = area.x + edge + n * column
                at.y = y
                at.width = column - _PAD
                parts.append(_drawn(box, at, self._style(box)))
            y += max(self._boxes[box.id].height for box in row) + _PAD
        return parts

    def _drawn_arrows(self) -> tuple[list[str], list[str]]:
        """Draw the arrows. Return their lines and, separately, their labels, which go on top of all."""
        lines = []
        labels = []
        for arrow in self._picture.arrows:
            ends = self._unit_of[arrow.source], self._unit_of[arrow.target]
            plain = ArrowStyle(label=arrow.label)
            line, of_arrow = _arrow(
                self._boxes[arrow.source],
                [self._units[unit] for unit in self._passages.get(ends, ())],
                self._boxes[arrow.target],
                self._styles.arrows.get((arrow.source, arrow.target), plain),
                is_alone=self._calls[ends] == 1,
            )
            lines.append(line)
            labels += of_arrow
        return lines, labels


def _columns(n: int) -> int:
    """Return the number of columns for `n` boxes of a frame."""
    return 1 if n <= _ONE_COLUMN else math.ceil(math.sqrt(n / 3))


def _rows(of_frame: Sequence[_T]) -> list[Sequence[_T]]:
    columns = _columns(len(of_frame))
    return [of_frame[n : n + columns] for n in range(0, len(of_frame), columns)]


def _keyed(part: str, key: str, title: str = "") -> str:
    """If a part has a key or a title, let it react to the mouse."""
    if not (key or title):
        return part
    tooltip = f"<title>{html.escape(title)}</title>" if title else ""
    return f'<g data-key="{html.escape(key)}">{tooltip}{part}</g>'


def _layers(
    units: Sequence[_Unit], calls: Sequence[tuple[_Unit, _Unit]]
) -> tuple[list[list[_Unit]], dict[tuple[_Unit, _Unit], list[_Unit]]]:
    """Put units in layers after the units that call them, except in a cycle.

    Within a layer, put a unit at a similar height as its neighbours. The layers also contain passages, which
    are units for calls that skip layers. Return the layers, and a dict that maps each call to the passages
    that it goes through.
    """
    ranks = _ranks(units, calls)
    passages: dict[tuple[_Unit, _Unit], list[_Unit]] = {}
    neighbours: dict[_Unit, list[_Unit]] = {unit: [] for unit in units}
    for a, b in calls:
        step = 1 if ranks[a] < ranks[b] else -1
        skipped = range(ranks[a] + step, ranks[b], step)
        passages[a, b] = [(f"{a} {b}", f"{n}") for n in skipped]
        ranks |= zip(passages[a, b], skipped, strict=True)
        for before, after in pairwise([a, *passages[a, b], b]):
            neighbours.setdefault(before, []).append(after)
            neighbours.setdefault(after, []).append(before)
    layers: list[list[_Unit]] = [[] for _ in range(max(ranks.values(), default=-1) + 1)]
    for unit in [*units, *(unit for passed in passages.values() for unit in passed)]:
        layers[ranks[unit]].append(unit)
    _sort_by_neighbours(layers, neighbours)
    return layers, passages


def _ranks(units: Sequence[_Unit], calls: Sequence[tuple[_Unit, _Unit]]) -> dict[_Unit, int]:
    """Return the number of each unit's layer. It is after its callers or, in a cycle, after some of them."""
    callers: dict[_Unit, list[_Unit]] = {unit: [] for unit in units}
    for a, b in calls:
        callers[b].append(a)
    ranks: dict[_Unit, int] = {}
    while True:
        unplaced = [unit for unit in units if unit not in ranks]
        if not unplaced:
            return ranks
        unit = min(unplaced, key=lambda unit: sum(caller not in ranks for caller in callers[unit]))
        before = [ranks[caller] for caller in callers[unit] if caller in ranks]
        ranks[unit] = max(before, default=-1) + 1


def _sort_by_neighbours(
    layers: Sequence[list[_Unit]], neighbours: Mapping[_Unit, Sequence[_Unit]]
) -> None:
    """Sort the units of each layer by the mean height of the unit and its neighbours.

    Do this for all layers, back and forth.
    """
    height = {unit: (n + 0.5) / len(layer) for layer in layers for n, unit in enumerate(layer)}
    for sweep in range(_SWEEPS):
        for layer in layers[:: -1 if sweep % 2 else 1]:
            means = {}
            for unit in layer:
                heights = [height[near_unit] for near_unit in [unit, *neighbours[unit]]]
                means[unit] = sum(heights) / len(heights)
            layer.sort(key=means.__getitem__)
            height |= {unit: (n + 0.5) / len(layer) for n, unit in enumerate(layer)}


def _lines(box: Box, style: BoxStyle) -> list[str]:
    return [*box.lines, *filter(None, [style.note])]


def _size(box: Box, style: BoxStyle) -> _Area:
    lines = _lines(box, style)
    longest = max(len(_cut(line)) for line in lines)
    extra = _PAD if box.shape in (CYLINDER, HEXAGON) else 0
    return _Area(longest * _CHARACTER + 2 * _PAD + extra, _LINE * len(lines) + _PAD + extra)


def _drawn(box: Box, at: _Area, style: BoxStyle) -> str:
    lines = _lines(box, style)
    top = at.middle - _LINE * len(lines) / 2 + 13 + (4 if box.shape == CYLINDER else 0)
    texts = [_text(at.x + at.width / 2, top + n * _LINE, line) for n, line in enumerate(lines)]
    part = (
        f'<path d="{_outline(box.shape, at)}" fill="{style.fill}" stroke="#446"/>{"".join(texts)}'
    )
    return _keyed(part, style.key, style.title)


def _outline(shape: str, at: _Area) -> str:
    x = at.x
    y = at.y
    w = at.width
    h = at.height
    if shape == HEXAGON:
        path = f"M{x:g},{y + h / 2:g}l{_PAD},{-h / 2:g}h{w - 2 * _PAD:g}l{_PAD},{h / 2:g}"
        return path + f"l{-_PAD},{h / 2:g}h{2 * _PAD - w:g}z"
    if shape == CYLINDER:
        lid = _PAD / 2
        side = h - _PAD
        arc = f"a{w / 2:g},{lid:g} 0 0,1"
        path = f"M{x:g},{y + lid:g}{arc} {w:g},0{arc} {-w:g},0v{side:g}"
        return path + f"a{w / 2:g},{lid:g} 0 0,0 {w:g},0v{-side:g}"
    r = 10 if shape == ROUND else 0
    corner = f"a{r},{r} 0 0,1"
    path = f"M{x + r:g},{y:g}h{w - 2 * r:g}{corner} {r},{r}v{h - 2 * r:g}{corner} {-r},{r}"
    return path + f"h{2 * r - w:g}{corner} {-r},{-r}v{2 * r - h:g}{corner} {r},{-r}z"


def _text(x: float, y: float, text: str, color: str = "black", *, halo: bool = False) -> str:
    behind = ' stroke="white" stroke-width="4" paint-order="stroke"' if halo else ""
    return f'<text x="{x:g}" y="{y:g}" fill="{color}"{behind}>{html.escape(_cut(text))}</text>'


def _cut(text: str) -> str:
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 1]}…"


def _arrow(
    a: _Area, areas: Sequence[_Area], b: _Area, style: ArrowStyle, *, is_alone: bool
) -> tuple[str, list[str]]:
    """Draw a line from `a` through the areas to `b`. Return the line and, separately, its label.

    Lines to the right are straight, lines back to the left are beside these, and lines within a layer are
    curved. The label is in the first passage, unless other arrows go through this passage.
    """
    right = a.x + a.width
    if right < b.x:
        x1 = right
        x2 = b.x
        y1 = a.middle - 4
        y2 = b.middle - 4
        bend = _GAP_X / 2
        last_bend = x2 - bend
    elif b.x + b.width < a.x:
        x1 = a.x
        x2 = b.x + b.width
        y1 = a.middle + 5
        y2 = b.middle + 5
        bend = -_GAP_X / 2
        last_bend = x2 - bend
    else:
        x1 = right
        x2 = b.x + b.width
        y1 = a.middle - 5
        y2 = b.middle + 5
        last_bend = max(x1, x2) + _GAP_X / 2
        bend = last_bend - x1
    path = f"M{x1:g},{y1:g}"
    label_x = (x1 + x2 + 3 * (x1 + bend + last_bend)) / 8
    label_y = (y1 + y2) / 2
    for n, area in enumerate(areas):
        sides = [area.x, area.x + area.width]
        entry, exit_ = sides if bend > 0 else sides[::-1]
        y = area.middle
        if n == 0 and is_alone:
            label_x = (entry + exit_) / 2
            label_y = y
        elif n == 0:
            label_x = (x1 + entry) / 2
            label_y = (y1 + y) / 2
        path += f"C{x1 + bend:g},{y1:g} {entry - bend:g},{y:g} {entry:g},{y:g}H{exit_:g}"
        x1 = exit_
        y1 = y
    path += f"C{x1 + bend:g},{y1:g} {last_bend:g},{y2:g} {x2:g},{y2:g}"
    thicker = style.width - 1
    # One line of the label is above the arrow, and one below it.
    heights = [label_y - 3 - thicker / 2, label_y + 15 + thicker]
    lines = zip(heights, style.label.split("\n"), strict=False)
    labels = [_text(label_x, height, line, "#555", halo=True) for height, line in lines if line]
    head = "head" if style.width == 1 else "thick"
    part = f'<path d="{path}" fill="none" stroke="{style.color}" stroke-width="{style.width:g}"'
    return _keyed(f'{part} marker-end="url(#{head})"/>', style.key, style.title), labels
