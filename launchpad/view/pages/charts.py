"""Charts of a program, or of a worker, for the last hour."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

from nicegui import ui

from launchpad.courier import formatting
from launchpad.view.pages import frame
from launchpad.view.watched_run import Sample, WatchedRun

_POINTS = 150
"""The most points in a chart. The chart of a whole hour has one point for each 30 s."""

_AGAIN_S = 1.0
_WIDTHS_S = (1, 2, 5, 10, 15, 30)
_Values = list[tuple[float, float]]


# Colours that colour-blind people can tell apart (Okabe and Ito, 2008).
_BLUE = "#0072b2"
_VERMILION = "#d55e00"


@dataclass(frozen=True)
class _Quantity:
    """A quantity with a chart."""

    title: str
    unit: str
    color: str
    of: Callable[[Sample], float | None]


_QUANTITIES = (
    _Quantity("calls", "/s", _BLUE, lambda sample: sample.calls_per_s),
    _Quantity("errors", "/s", _VERMILION, lambda sample: sample.errors_per_s),
    _Quantity("CPU", "%", _BLUE, lambda sample: sample.cpu_percent),
    _Quantity("memory", "B", _BLUE, lambda sample: sample.memory_bytes),
    _Quantity("GPU", "%", _BLUE, lambda sample: sample.gpu_percent),
    _Quantity("GPU memory", "B", _BLUE, lambda sample: sample.gpu_memory_bytes),
)


def add(run: WatchedRun, worker: str = "") -> None:
    """Add the charts of a program, or of one of its workers.

    A chart appears with its first value, and a quantity without values has no chart. The charts change at
    most once a second.
    """
    if run.has_ended and not run.samples.program:
        return
    frame.section("the last hour")
    box = ui.element("div").classes("charts").props("id=charts")
    charts: dict[str, ui.echart] = {}
    last_at = 0.0

    async def draw() -> None:
        nonlocal last_at
        samples = list(run.samples.workers.get(worker, ()) if worker else run.samples.program)
        if not samples or samples[-1].at == last_at:
            return
        last_at = samples[-1].at
        for quantity in _QUANTITIES:
            values = points(samples, quantity.of)
            if not values:
                continue
            options = _options(quantity, values)
            chart = charts.get(quantity.title)
            if chart is None:
                with box:
                    charts[quantity.title] = ui.echart(options, renderer="svg").classes("chart")
            else:
                chart.options.update(options)
                chart.update()

    ui.timer(_AGAIN_S, draw, immediate=False)


def points(samples: Sequence[Sample], of: Callable[[Sample], float | None]) -> _Values:
    """Return the times and values of a chart's points. If there are too many, average neighbours.

    Each average is over an interval that begins at a multiple of its width, so that a point stays the same
    when more samples come.
    """
    width_s = next((w for w in _WIDTHS_S if _span(samples) / w <= _POINTS), _WIDTHS_S[-1])
    means: _Values = []
    for number, interval in groupby(samples, lambda sample: sample.at // width_s):
        values = [value for value in map(of, interval) if value is not None]
        if values:
            means.append((number * width_s, sum(values) / len(values)))
    return means


def _span(samples: Sequence[Sample]) -> float:
    return samples[-1].at - samples[0].at


def _options(quantity: _Quantity, values: _Values) -> dict[str, Any]:
    unit, unit_size = _unit(quantity, [value for _, value in values])
    data = [[round(at * 1000), _rounded(value / unit_size)] for at, value in values]
    now = f"{data[-1][1]:,.10g}"
    return {
        "animation": False,
        "title": {
            "text": f"{quantity.title}  {now} {unit}".replace(" /s", "/s"),
            "left": 0,
            "top": 0,
            "textStyle": {"fontSize": 13, "fontWeight": 500, "fontFamily": "system-ui, sans-serif"},
        },
        "grid": {"left": 44, "right": 12, "top": 28, "bottom": 22},
        "tooltip": {"trigger": "axis", "confine": True},
        "xAxis": {
            "type": "time",
            "axisLabel": {"hideOverlap": True, "fontSize": 10},
            "splitNumber": 3,
        },
        "yAxis": {
            "type": "value",
            "min": 0,
            "minInterval": 0 if max(value for _, value in data) else 1,
            "splitNumber": 2,
            "axisLabel": {"fontSize": 10},
        },
        "series": [
            {
                "name": f"{quantity.title}, {unit}",
                "type": "line",
                "showSymbol": len(data) == 1,
                "color": quantity.color,
                "lineStyle": {"width": 1.5},
                "areaStyle": {"opacity": 0.12},
                "data": data,
            }
        ],
    }


def _unit(quantity: _Quantity, values: Iterable[float]) -> tuple[str, float]:
    """Return the unit of a chart, and the unit's size. For bytes, the unit makes the largest value short."""
    if quantity.unit != "B":
        return quantity.unit, 1.0
    return formatting.size_unit(max(1.0, *values))


def _rounded(value: float) -> float:
    """Round to three digits, or to a whole number."""
    return round(value) if value >= 100 else float(f"{value:.3g}")
