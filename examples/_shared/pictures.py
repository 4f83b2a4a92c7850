"""Pictures of results: curves and timelines, side by side in one SVG, if `--picture=FILE` names a file.

Without the flag these functions only remember their arguments, and matplotlib is not imported.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from absl import flags

from examples._shared.logical_time import Traces, replay

PICTURE = flags.DEFINE_string("picture", "", "File for a picture of the result, as SVG.")
STYLE: dict[Any, Any] = {
    "font.size": 9,
    "svg.fonttype": "none",  # keep text as text, which makes the file ten times smaller
    "svg.hashsalt": "launchpad",  # make the same file from the same figures
    "axes.spines.top": False,
    "axes.spines.right": False,
}

Draw = Callable[[Any], None]
"""A function that draws on the axes of matplotlib that it is given."""

_panels: list[tuple[str, Draw]] = []


class Bar(NamedTuple):
    """A piece of work in a timeline. Pieces of one kind have one colour."""

    start: float
    end: float
    kind: str


def curves(title: str, x_label: str, y_label: str, by_name: Mapping[str, Sequence[float]]) -> None:
    """Add a panel with one curve for each name. The first value of a curve is at 0 of the x axis.

    A single curve has no legend: the panel's title says what it is.
    """

    def draw(axes: Any) -> None:
        for name, values in by_name.items():
            axes.plot(range(len(values)), values, label=name)
        axes.set_xlabel(x_label)
        axes.set_ylabel(y_label)
        if len(by_name) > 1:
            _put_legend_below(axes)

    _panels.append((title, draw))


def bars(title: str, y_label: str, by_name: Mapping[str, float]) -> None:
    """Add a panel with one bar for each name."""

    def draw(axes: Any) -> None:
        axes.bar(list(by_name), list(by_name.values()), color="C0")
        axes.set_ylabel(y_label)
        is_crowded = len(by_name) > 5
        axes.tick_params(axis="x", labelrotation=20 if is_crowded else 0)

    _panels.append((title, draw))


def timeline(title: str, x_label: str, by_worker: Mapping[str, Sequence[Bar]]) -> None:
    """Add a panel with one row for each worker, which shows when the worker did what."""

    def draw(axes: Any) -> None:
        kinds = list(dict.fromkeys(bar.kind for row in by_worker.values() for bar in row))
        for row, own in enumerate(by_worker.values()):
            for bar in own:
                color = f"C{kinds.index(bar.kind)}"
                axes.barh(row, bar.end - bar.start, left=bar.start, color=color, edgecolor="white")
        axes.set_yticks(range(len(by_worker)), list(by_worker))
        axes.invert_yaxis()
        axes.set_xlabel(x_label)
        for i, kind in enumerate(kinds):
            axes.bar(0, 0, color=f"C{i}", label=kind)
        _put_legend_below(axes)

    _panels.append((title, draw))


def _put_legend_below(axes: Any) -> None:
    """Put the legend where it hides no curve, in rows of three."""
    axes.legend(frameon=False, loc="upper center", bbox_to_anchor=(0.5, -0.2), ncols=3)


def traces(title: str, of_workers: Traces, until: float, name: str = "stage") -> None:
    """Add a timeline of the workers' events in logical time, up to a moment."""
    rows = {}
    for i, (trace, spans) in enumerate(zip(of_workers, replay(of_workers), strict=True)):
        pairs = zip(trace, spans, strict=True)
        bars = [Bar(float(span.start), float(span.end), event.kind) for event, span in pairs]
        rows[f"{name} {i}"] = [bar for bar in bars if bar.end <= until]
    timeline(title, "logical time", rows)


def write() -> None:
    """Write the panels to the file that `--picture` names, if it names one."""
    if not PICTURE.value or not _panels:
        return
    import matplotlib

    matplotlib.use("svg")
    matplotlib.rcParams.update(STYLE)
    from matplotlib import pyplot

    figure, rows = pyplot.subplots(
        1, len(_panels), figsize=(4.5 * len(_panels), 3), layout="constrained", squeeze=False
    )
    for axes, (title, draw) in zip(rows[0], _panels, strict=True):
        axes.set_title(title)
        draw(axes)
    figure.savefig(PICTURE.value, metadata={"Date": None})
