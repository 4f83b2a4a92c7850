"""Sentences that a reader has to read twice: `python -m tests.prose` lists them, and fails if there are any.

It reads the docstrings, comments and texts of the package and the examples, and the Markdown pages:

    headless    a docstring's first line that is no full statement ("What…", "Whether…", "Of…")
    idioms      expressions that are not plain English ("in vain", "anew", "is to be")
    layout      Markdown lines over 100 columns, tables of more than 4 columns

`make lint` runs it.
"""

from __future__ import annotations

import ast
import io
import re
import sys
import tokenize
from collections.abc import Iterator
from pathlib import Path

from tests import structure

ROOT = Path(__file__).parents[1]
WIDTH = 100
MOST_COLUMNS = 4

# An expression that is refused, and what to write instead.
IDIOMS = {
    r"\b(is|are|was|were) none\b": "say what it is, or that there is no ...",
    r"\b(is|are) to be\b": "must be, or should be",
    r"\bso (many|long)\b(?! (as|that)\b)": "name the quantity",
    r"\bsuch\b(?=[.,;:]| (is|are|was|were|has|have)\b)": "name the thing",
    r"\banew\b": "again",
    r"\bin vain\b": "without success",
    r"\bbut for\b": "except for, or without",
    r"\bmeanwhile\b": "while ..., in the meantime",
    r"\bin place of\b": "instead of",
    r"\bmend(s|ed|ing)?\b": "repair, fix, correct",
    r"\bawake\b": "busy-polling, running",
    r"\bwhat has become of\b": "the state of, the outcome of",
    r"\bfor ever\b": "forever, indefinitely",
    r"\bin good order\b": "orderly, cleanly",
}
REFUSED = {re.compile(pattern, re.IGNORECASE): advice for pattern, advice in IDIOMS.items()}

Finding = tuple[Path, int, str]


def findings(root: Path) -> list[Finding]:
    """List file, line and complaint for the code and the pages below `root`."""
    packages = [root / "launchpad", root / "examples"]
    pages = sorted(
        [*root.glob("*.md"), *(root / "docs").rglob("*.md"), *(root / "examples").rglob("*.md")]
    )
    found = [
        (path, line, f"headless docstring: {text}")
        for package in packages
        for path, line, text in structure.headless_docstrings(package)
    ]
    modules = [path for package in packages for path in package.rglob("*.py")]
    for path in sorted(modules):
        for line, text in comments_and_strings(path):
            found += [(path, line + below, words) for below, words in idioms(text)]
    for page in pages:
        for line, text in sentences(page):
            found += [(page, line, words) for _, words in idioms(text)]
        found += [(page, line, complaint) for line, complaint in layout(page)]
    return found


def comments_and_strings(path: Path) -> Iterator[tuple[int, str]]:
    """Yield each comment of a module with its line, and each string: docstrings, errors and other texts."""
    source = path.read_text()
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            yield token.start[0], token.string
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.lineno, node.value


def sentences(page: Path) -> Iterator[tuple[int, str]]:
    """Yield the lines of a page, without blocks of code, names in backquotes and addresses of links."""
    is_code = False
    for number, line in enumerate(page.read_text().splitlines(), 1):
        is_code ^= line.lstrip().startswith("```")
        if not is_code:
            yield number, re.sub(r"`[^`]*`|\]\([^)]*\)", "", line)


def idioms(text: str) -> Iterator[tuple[int, str]]:
    """Yield how many lines below the beginning of `text` a refused expression stands, and what to do."""
    for pattern, advice in REFUSED.items():
        for match in pattern.finditer(text):
            # `None` is Python's, and "is None" is code.
            if not match.group().endswith("None"):
                yield text.count("\n", 0, match.start()), f'"{match.group()}": write {advice}'


def layout(page: Path) -> Iterator[tuple[int, str]]:
    """Yield each line of prose that is too long, and each table that is too wide."""
    is_code = False
    for number, line in enumerate(page.read_text().splitlines(), 1):
        is_code ^= line.lstrip().startswith("```")
        if is_code:
            continue
        is_row = line.startswith("|")
        if is_row and set(line) <= set("|-: ") and line.count("|") - 1 > MOST_COLUMNS:
            yield number, f"a table of more than {MOST_COLUMNS} columns"
        # A table's row cannot be broken, and a link's address isn't read.
        length = len(re.sub(r"\]\([^)]*\)", "]", line))
        if length > WIDTH and not is_row:
            yield number, f"{length} columns, {WIDTH} at most"


def main() -> int:
    """Print what is found, as `file:line: complaint`, and return 1 if there is anything."""
    found = findings(ROOT)
    for path, line, complaint in found:
        print(f"{path.relative_to(ROOT)}:{line}: {complaint}")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
