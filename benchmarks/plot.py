"""A picture of the figures of `make bench`: latency, calls/s and GB/s, ours beside those of other libraries.

python benchmarks/plot.py [--json FILE] [--to FILE]
"""

from __future__ import annotations

import argparse
import json
import math
from pathlib import Path
from typing import Any

from examples._shared.pictures import STYLE

ROOT = Path(__file__).resolve().parent.parent
OURS = "#c2410c"
OTHERS = "#64748b"
LINES = (
    "memcpy",
    "raw unix",
    "courier",
    "courier tcp",
    "zmq",
    "grpcio",
)  # more lines are hard to read
GAP = 0.17  # the least distance of two lines' names, in powers of ten


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--json", type=Path, default=ROOT / "benchmarks/results/rpc.json")
    parser.add_argument("--to", type=Path, default=ROOT / "docs/images/calls.svg")
    options = parser.parse_args()
    options.to.parent.mkdir(parents=True, exist_ok=True)
    draw(json.loads(options.json.read_text()), options.to)
    print(f"{options.to}: {options.to.stat().st_size / 1000:.0f} kB")


def draw(report: dict[str, Any], to: Path) -> None:
    import matplotlib

    matplotlib.use("svg")
    matplotlib.rcParams.update(STYLE)
    from matplotlib import pyplot

    figure, (latency_axes, rate_axes, array_axes) = pyplot.subplots(
        1, 3, figsize=(13, 3.6), layout="constrained"
    )
    latency = report["latency"]["unpinned"]
    pipelined = report["pipelined"]["two cores"]
    draw_dots(
        latency_axes, medians(latency, "p50_us"), "One call at a time: p50, µs (less is better)"
    )
    draw_dots(
        rate_axes, medians(pipelined, "calls_per_s"), "20,000 calls in flight: calls/s (more …)"
    )
    draw_lines(array_axes, report["arrays"]["GB_per_s"], "Arrays, there and back: GB/s (more …)")
    machine = report["machine"]
    figure.supxlabel(
        f"{machine['cpu']}, {machine['cores']} cores, unpinned · Python {machine['python']} · "
        f"{machine['date'][:10]} · medians of one run, log scales",
        fontsize=8,
        color="#475569",
    )
    figure.savefig(to, metadata={"Date": None}, facecolor="white")


def medians(rows: dict[str, Any], figure: str) -> dict[str, float]:
    return {name: row[figure]["median"] for name, row in rows.items()}


def draw_dots(axes: Any, values: dict[str, float], title: str) -> None:
    """Draw a dot for each value. On a log scale the length of a bar would mean nothing."""
    names = list(values)[::-1]
    axes.scatter(list(values.values())[::-1], names, s=50, color=[color(name) for name in names])
    for name in names:
        axes.annotate(
            shortly(values[name]),
            (values[name], name),
            xytext=(7, -3),
            textcoords="offset points",
            color=color(name),
        )
    axes.set_xscale("log")
    axes.margins(x=0.2)
    axes.grid(axis="x", color="#e2e8f0")
    axes.set_axisbelow(True)
    axes.set_title(title, loc="left", fontsize=10)
    axes.tick_params(left=False)


def draw_lines(axes: Any, rows: dict[str, Any], title: str) -> None:
    lines = {name: medians_of(rows[name]) for name in LINES if name in rows}
    heights = apart({name: list(line.values())[-1] for name, line in lines.items()})
    for name, line in lines.items():
        axes.plot(
            list(line),
            list(line.values()),
            color=color(name),
            linestyle="--" if name in ("memcpy", "courier tcp") else "-",
            linewidth=2 if name.startswith("courier") else 1,
        )
        axes.annotate(
            name,
            (list(line)[-1], heights[name]),
            xytext=(5, -3),
            textcoords="offset points",
            color=color(name),
        )
    axes.set_yscale("log")
    axes.margins(x=0.02)
    axes.tick_params(axis="x", labelsize=7)
    axes.grid(axis="y", color="#e2e8f0")
    axes.set_title(title, loc="left", fontsize=10)


def medians_of(row: dict[str, dict[str, float]]) -> dict[str, float]:
    return {size: figures["median"] for size, figures in row.items()}


def apart(heights: dict[str, float]) -> dict[str, float]:
    """Return the heights of the names, moved up where two of them would overlap."""
    places: dict[str, float] = {}
    lowest = -math.inf
    for name in sorted(heights, key=heights.__getitem__):
        height = max(math.log10(heights[name]), lowest)
        places[name] = 10**height
        lowest = height + GAP
    return places


def color(name: str) -> str:
    return OURS if name.startswith("courier") else OTHERS


def shortly(value: float) -> str:
    return f"{value:.1f}" if value < 100 else f"{value:,.0f}"


if __name__ == "__main__":
    main()
