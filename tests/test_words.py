"""Names are the field's own: words that no reader from another system would look for are refused."""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections.abc import Iterator
from pathlib import Path

import launchpad

PACKAGE = Path(launchpad.__file__).parent
ROOT = Path(__file__).parents[1]

# Metaphors and coined words, as a part of an identifier or of a file name; docs/glossary.md has what to use.
# A ring is none: so the field calls an all-reduce that goes from neighbour to neighbour.
BANNED = set(
    """
    abroad acquaintance admit adopt away baggage behalf bell birth borrower borrowers born briefing bury bye
    clapper crowd cure dismiss dismissed distrust door doors dying ears elsewhere errand farewell fate fates
    frills furnish gang gangs goodbye greet greeted greeter greeting hear heard heed heeds home hopeless house
    houses hurry hurried hush insist insists insisting introduce keeper knock ledger lend lender lent letter
    letters lives living loan lookout misfit misfits mouth newborn news nobody somebody obey obeyed orders
    outbox outlet outpost owe owed pace paces parcel parcels patience patient pay relieve relieved remind
    retreat rouse rung said sealed seat steward stowed strike strikes surroundings suspicion
    suspicions tell telling thieves throws trial twin twins undertaker undertakers unfailing unsaid unseal
    unseat untold urge vigil visitor visitors welcome whereabouts whoever wish wished wishes
    """.split()
)

# In a name each of these was a metaphor; in a sentence it is plain English.
PLAIN_IN_A_SENTENCE = set("away elsewhere home letter letters said tell telling".split())


def words_of(name: str) -> list[str]:
    """The parts of `snake_case` and `CamelCase`."""
    return [word.lower() for word in re.findall(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+", name)]


def identifiers(tree: ast.AST) -> Iterator[tuple[int, str]]:
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield node.lineno, node.name
        elif isinstance(node, ast.Name):
            yield node.lineno, node.id
        elif isinstance(node, ast.Attribute):
            yield node.lineno, node.attr
        elif isinstance(node, ast.arg):
            yield node.lineno, node.arg


def test_no_file_and_no_identifier_has_a_word_of_our_own() -> None:
    found = []
    for path in PACKAGE.rglob("*.py"):
        names = [(0, path.stem), (0, path.parent.name), *identifiers(ast.parse(path.read_text()))]
        found += [
            f"{path}:{line} {name}" for line, name in names if not BANNED.isdisjoint(words_of(name))
        ]

    assert sorted(set(found)) == []


def comments_and_docstrings(path: Path) -> Iterator[tuple[int, str]]:
    for token in tokenize.generate_tokens(io.StringIO(path.read_text()).readline):
        if token.type == tokenize.COMMENT or token.string.startswith('"""'):
            yield token.start[0], token.string


def sentences(page: Path) -> Iterator[tuple[int, str]]:
    """The lines of a page, without blocks of code, names in backquotes and addresses of links."""
    is_code = False
    for number, line in enumerate(page.read_text().splitlines(), 1):
        is_code ^= line.lstrip().startswith("```")
        if not is_code:
            yield number, re.sub(r"`[^`]*`|\]\([^)]*\)", "", line)


def test_no_docstring_no_comment_and_no_page_has_one() -> None:
    pages = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")]
    texts = [
        (path, text) for path in PACKAGE.rglob("*.py") for text in comments_and_docstrings(path)
    ]
    texts += [(page, text) for page in pages for text in sentences(page)]

    found = [
        f"{path}:{line} {words}"
        for path, (line, text) in texts
        if (words := (BANNED - PLAIN_IN_A_SENTENCE).intersection(words_of(text)))
    ]

    assert found == []
