"""Draw a program, without starting anything, or one that runs: boxes for its groups, arrows for its edges.

Mermaid is what GitHub and notebooks show, dot what Graphviz reads; an SVG needs neither.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from launchpad.cli import programs, runs
from launchpad.cli.runs import CommandError
from launchpad.graph.picture import Picture, dot, mermaid, picture_of
from launchpad.graph.svg import svg

FORMATS = {"mermaid": mermaid, "dot": dot, "svg": svg}
_SUFFIXES = {".svg": "svg", ".dot": "dot", ".gv": "dot"}

USAGE = "%(prog)s [MODULE:NAME|FILE.py:NAME|RUN] [--format mermaid|dot|svg] [-o FILE] [-- FLAG …]"
ARGUMENTS = {
    "drawn": {
        "metavar": "MODULE:NAME",
        "nargs": "?",
        "help": "a program, or a function that makes one, as for plan; without a colon it is a run",
    },
    "--format": {
        "choices": list(FORMATS),
        "help": "the default is that of FILE's name, or mermaid",
    },
    "-o --output": {"metavar": "FILE", "help": "else it is printed"},
}


def run(options: argparse.Namespace) -> None:
    """Finds or makes it, draws it."""
    suffix = Path(options.output or "").suffix
    draw = FORMATS[options.format or _SUFFIXES.get(suffix, "mermaid")]
    if ":" in (options.drawn or "") or (options.drawn or "").endswith(".py"):
        _, program = programs.find(options.drawn, options.flags, up_to_launch=True)
        picture = picture_of(program)
    else:
        one = runs.find(options.drawn)
        plain = one.picture
        if not plain:  # on a cluster the record of a run has to be small
            with runs.connected(one) as client:
                plain = client.picture()
        picture = Picture.from_dict(plain)
    text = draw(picture)
    if options.output is None:
        print(text)
        return
    try:
        Path(options.output).write_text(f"{text}\n", encoding="utf-8")
    except OSError as error:
        raise CommandError(f"the picture cannot be written: {error}") from error
