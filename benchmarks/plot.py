"""Draws what `make bench` has measured: latency, calls/s and GB/s, ours beside the others'.

python benchmarks/plot.py [--json FILE] [--to FILE]
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
OURS, OTHERS = "#c2410c", "#94a3b8"
STYLE = {
    "font.size": 9,
    "svg.fonttype": "none",  # text as text: a tenth of the size
    "svg.hashsalt": "launchpad",  # the same figures give the same file
    "axes.spines.top": False,
    "axes.spines.right": False,
}


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

    figure, (left, middle, right) = pyplot.subplots(1, 3, figsize=(12, 3.6), layout="constrained")
    draw_bars(left, medians(report["latency"]["unpinned"], "p50_us"), "one call at a time: p50, µs")
    draw_bars(
        middle, medians(report["pipelined"], "calls_per_s"), "20,000 calls in flight: calls/s"
    )
    draw_lines(right, report["arrays"]["GB_per_s"])
    described = report["machine"]
    figure.supxlabel(
        f"{described['cpu']}, {described['cores']} cores, unpinned · Python {described['python']} · "
        f"{described['date'][:10]} · medians of one run, log scales",
        fontsize=8,
        color="#475569",
    )
    figure.savefig(to, metadata={"Date": None}, facecolor="white")


def medians(rows: dict[str, Any], figure: str) -> dict[str, float]:
    return {name: row[figure]["median"] for name, row in rows.items()}


def draw_bars(axes: Any, values: dict[str, float], title: str) -> None:
    names = list(values)[::-1]
    bars = axes.barh(
        names, [values[name] for name in names], color=[color(name) for name in names], log=True
    )
    axes.bar_label(bars, labels=[shortly(values[name]) for name in names], padding=3, fontsize=8)
    axes.margins(x=0.2)
    axes.set_title(title, loc="left", fontsize=10)
    axes.tick_params(left=False)


def draw_lines(axes: Any, rows: dict[str, Any]) -> None:
    for name, row in rows.items():
        is_ours = name.startswith("courier")
        axes.plot(
            list(row),
            [spread["median"] for spread in row.values()],
            color=color(name),
            linestyle="-" if name in ("courier", "zmq", "raw unix") else "--",
            linewidth=2 if is_ours else 1,
        )
        axes.annotate(
            name,
            (list(row)[-1], list(row.values())[-1]["median"]),
            xytext=(4, -3),
            textcoords="offset points",
            color=color(name),
            fontsize=8,
        )
    axes.set_yscale("log")
    axes.margins(x=0.02)
    axes.set_title("float32 there and back: GB/s", loc="left", fontsize=10)


def color(name: str) -> str:
    return OURS if name.startswith("courier") else OTHERS


def shortly(value: float) -> str:
    return f"{value:.1f}" if value < 100 else f"{value:,.0f}"


if __name__ == "__main__":
    main()
