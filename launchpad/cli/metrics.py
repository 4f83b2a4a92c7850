"""Print the numbers of a program as text for Prometheus.

Calls over edges, CPU and memory of workers; for a person they are in `ps`.
"""

from __future__ import annotations

import argparse

from launchpad.cli import runs

ARGUMENTS = {"run": {"metavar": "RUN", "nargs": "?", "help": "which"}}


def run(options: argparse.Namespace) -> None:
    """Prints them once."""
    with runs.connected(runs.find(options.run)) as client:
        metrics = client.metrics(runs.LOOK_S)
    print(metrics.to_prometheus(), end="")
