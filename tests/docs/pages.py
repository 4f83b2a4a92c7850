"""The pages of the documentation, and what in them can be checked."""

from __future__ import annotations

import functools
import itertools
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
SNIPPETS = ROOT / "docs" / "snippets"
PAGES = sorted(
    [
        *(ROOT / name for name in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md")),
        *(ROOT / "docs").rglob("*.md"),
    ]
)

_BLOCK = re.compile(
    r"(?:^<!-- (?P<marker>[^\n]+?) -->\n)?^```(?P<kind>\w*)\n(?P<text>.*?)^```$", re.M | re.S
)


@dataclass(frozen=True)
class Block:
    """A fenced block. `marker` is the comment on the line before it."""

    page: Path
    kind: str
    marker: str
    text: str

    def __str__(self) -> str:
        first = self.text.strip().partition("\n")[0]
        return f"{self.page.relative_to(ROOT)}: {first}"


def blocks(*kinds: str) -> list[Block]:
    """All blocks of these kinds, in all pages."""
    return [
        Block(page, found["kind"], found["marker"] or "", found["text"])
        for page in PAGES
        for found in _BLOCK.finditer(page.read_text())
        if found["kind"] in kinds
    ]


def prose(page: Path) -> str:
    """A page without its fenced blocks."""
    return _BLOCK.sub("", page.read_text())


def snippet(name: str) -> str:
    """The text of `docs/snippets/file.py`, or of `docs/snippets/file.py#part`."""
    path, _, part = name.partition("#")
    lines = (ROOT / path).read_text().splitlines()
    if not part:
        return "\n".join(line for line in lines if not _is_mark(line)).strip()
    begin = lines.index(f"# part: {part}") + 1
    length = next((i for i, line in enumerate(lines[begin:]) if _is_mark(line)), None)
    return "\n".join(lines[begin:][:length]).strip()


def _is_mark(line: str) -> bool:
    return line.startswith("# part: ") or line == "# end"


@functools.cache
def run(command: str, timeout_s: float = 100.0) -> tuple[int, str]:
    """Exit code and output of a shell command, run as a reader would: in the checkout, with our Python."""
    path = os.pathsep.join([os.path.dirname(sys.executable), os.environ["PATH"]])
    quiet = {k: v for k, v in os.environ.items() if _is_of_readers_or_tests(k)}
    done = subprocess.run(
        ["bash", "-c", command],
        cwd=ROOT,
        env={**quiet, "PATH": path, "PYTHONPATH": str(ROOT)},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=timeout_s,
        check=False,
    )
    return done.returncode, done.stdout


def _is_of_readers_or_tests(variable: str) -> bool:
    return variable.endswith("_DIR") or not variable.startswith(("LP_", "LAUNCHPAD_"))


def difference(shown: str, printed: str) -> str:
    """What a page shows and the program has not printed, or the reverse; nothing if they agree.

    Workers print side by side, so only the order of each one's lines counts. `…` stands for anything:
    within a line for a part of it, alone on a line for lines. Where numbers differ from run to run
    (processes, bytes, paths, dates) they are not compared.
    """
    is_cut = any(line.strip() == "…" for line in shown.splitlines())
    theirs, ours = _by_worker(_SLOW_START.sub("", printed)), _by_worker(shown)
    for worker in ours if is_cut else {**ours, **theirs}:
        left = iter(theirs.get(worker, []))
        for line in ours.get(worker, []):
            if not _finds(line, left, passing_over=is_cut):
                return f"the program has not printed {line!r} there, but:\n{printed}"
        if not is_cut and (rest := list(left)):
            return f"the page does not show {rest}:\n{printed}"
    return ""


def _finds(line: str, printed: Iterator[str], passing_over: bool) -> bool:
    """Whether the next printed line, or one of those that follow, is the one that a page shows."""
    pattern = ".*".join(re.escape(part) for part in line.split("…"))
    candidates = printed if passing_over else itertools.islice(printed, 1)
    return any(re.fullmatch(pattern, candidate) for candidate in candidates)


def _by_worker(text: str) -> dict[str, list[str]]:
    """Worker → its lines; those without a worker under an empty name. Carets and blanks left out."""
    lines: dict[str, list[str]] = {}
    for line in text.splitlines():
        worker, bar, rest = line.partition(" | ")
        worker, rest = (worker.strip(), rest) if bar else ("", line)
        if set(rest) - set(" ~^") and rest.strip() != "…":
            lines.setdefault(worker, []).append(_without_what_varies(rest))
    return lines


_SLOW_START = re.compile(r"^launchpad +\| .*\bworkers? (is|are) ready after .*\n", re.M)
"""Printed on a busy machine only."""

_VARIES = [
    # A server answers calls a moment before its launcher knows that it does.
    (r"(?<= in )(init|run)(?= \(attempt \d+\): exited with code)", "init or run"),
    (r"(?<=\b(?:pid|PID) )\d+", "N"),
    (r"(?<=process )\d+", "N"),
    (r"[\d,]+ B\b", "N B"),
    (r"host: [\w.-]+", "host: H"),
    (r'(?<=File ")[^"]*/(?=[^/"]+")', ""),
    (r"(?:/[\w.-]+)*/launchpad-\d+(?:-logs)?/[\w.-]+", "/RUN"),
    (r"(?:/[\w.-]+)+/docs/snippets/", "docs/snippets/"),
    (r"\s+", " "),
]


def _without_what_varies(line: str) -> str:
    for what, name in _VARIES:
        line = re.sub(what, name, line)
    return line.strip()
