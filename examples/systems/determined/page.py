"""The page of trials: their states, hyperparameters and curves, in one file of HTML without scripts."""

from __future__ import annotations

import math
import threading
from collections import defaultdict
from collections.abc import Callable
from html import escape
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from examples.systems.determined.log import History, Report, TrialRow

WIDTH = 640
HEIGHT = 200

PAGE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8">{refresh}<title>{n_closed} of {n} trials are closed</title>
<style>
body {{ font: 14px sans-serif; margin: 2em }} td, th {{ padding: 0 1em 0 0; text-align: left }}
svg {{ border: 1px solid #ccc }} polyline {{ fill: none; stroke: #36c; stroke-width: 1.5; marker: url(#dot) }}
.running {{ color: #080 }} .waiting {{ color: #a60 }}
</style></head><body><h1>{n_closed} of {n} trials are closed</h1>
{experiments}
</body></html>
"""

EXPERIMENT = """<section><h2>{name}</h2>
<svg width="{width}" height="{height}" role="img" aria-label="losses of {name}, by epochs">
<defs><marker id="dot" markerWidth="4" markerHeight="4" refX="2" refY="2"><circle cx="2" cy="2" r="1.5"
fill="#36c"/></marker></defs>
{curves}
</svg>
<table><tr><th>trial<th>state<th>hyperparameters<th>slots<th>epochs<th>loss<th>allocations</tr>
{rows}
</table></section>"""


def page(history: History) -> str:
    """Return the log as a page of HTML."""
    reports: dict[int, list[Report]] = defaultdict(list)
    for report in history.reports:
        reports[report.trial].append(report)
    of_experiment: dict[str, list[TrialRow]] = defaultdict(list)
    for trial in history.trials:
        of_experiment[trial.experiment].append(trial)
    sections = []
    for name, trials in of_experiment.items():
        at = scale([report for trial in trials for report in reports[trial.n]])
        curves = [curve(trial, [at(report) for report in reports[trial.n]]) for trial in trials]
        rows = [row(trial, reports[trial.n], history) for trial in trials]
        sections.append(
            EXPERIMENT.format(
                name=escape(name),
                width=WIDTH,
                height=HEIGHT,
                curves="\n".join(curves),
                rows="\n".join(rows),
            )
        )
    n_closed = sum(trial.is_closed for trial in history.trials)
    is_over = n_closed == len(history.trials)
    return PAGE.format(
        refresh="" if is_over else '<meta http-equiv="refresh" content="2">',
        n_closed=n_closed,
        n=len(history.trials),
        experiments="\n".join(sections),
    )


def scale(reports: list[Report]) -> Callable[[Report], str]:
    """Return a function that places a report on the picture: epochs go right, and losses go up."""
    epochs = max((report.epochs for report in reports), default=1)
    losses = [report.loss for report in reports if math.isfinite(report.loss)]
    low = min(losses, default=0.0)
    high = max(losses, default=1.0)

    def at(report: Report) -> str:
        share = (min(report.loss, high) - low) / ((high - low) or 1)
        x = report.epochs / epochs * (WIDTH - 20) + 10
        y = (1 - share) * (HEIGHT - 20) + 10
        return f"{x:.1f},{y:.1f}"

    return at


def curve(trial: TrialRow, points: list[str]) -> str:
    """Return the curve of a trial, as SVG."""
    name = f"{escape(trial.experiment)}/{trial.number}"
    return f'<polyline id="{name}" points="{" ".join(points)}"><title>{name}</title></polyline>'


def row(trial: TrialRow, reports: list[Report], history: History) -> str:
    """Return the row of a trial, as HTML."""
    outcomes = [each.outcome or "runs" for each in history.allocations if each.trial == trial.n]
    if trial.is_closed:
        state = "closed"
    elif outcomes[-1:] == ["runs"]:
        state = "running"
    else:
        state = "waiting"
    values = ", ".join(f"{name} {value:.3g}" for name, value in trial.hyperparameters.items())
    cells = (
        f"{trial.experiment}/{trial.number}",
        state,
        values,
        trial.slots,
        trial.epochs,
        repr(reports[-1].loss) if reports else "",
        ", ".join(outcomes),
    )
    return (
        f'<tr class="{state}">'
        + "".join(f"<td>{escape(str(cell))}</td>" for cell in cells)
        + "</tr>"
    )


def serve(make_page: Callable[[], str], port: int = 0) -> ThreadingHTTPServer:
    """Serve the page on this host until the server is shut down. Visitors can only read it."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            body = make_page().encode()
            self.send_response(200)
            self.send_header("Content-Type", "text/html; charset=utf-8")
            self.send_header(
                "Content-Security-Policy", "default-src 'none'; style-src 'unsafe-inline'"
            )
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *args: object) -> None:
            """Log nothing: the output is that of trials."""

    server = ThreadingHTTPServer(("127.0.0.1", port), Handler)
    loop = threading.Thread(target=server.serve_forever, args=(0.1,), name="pages", daemon=True)
    loop.start()
    return server
