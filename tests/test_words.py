"""Names are the field's own: words that no reader from another system would look for are refused."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import launchpad

PACKAGE = Path(launchpad.__file__).parent

# Metaphors and coined words, as a part of an identifier or of a file name; docs/glossary.md has what to use.
BANNED = set(
    """
    abroad acquaintance admit adopt away baggage behalf bell birth borrower borrowers born briefing bury bye
    clapper crowd cure dismiss dismissed distrust door doors dying ears elsewhere errand farewell fate fates
    frills furnish gang gangs goodbye greet greeted greeter greeting hear heard heed heeds home hopeless house
    houses hurry hurried hush insist insists insisting introduce keeper knock ledger lend lender lent letter
    letters lives living loan lookout misfit misfits mouth newborn news nobody somebody obey obeyed orders
    outbox outlet outpost owe owed pace paces parcel parcels patience patient pay relieve relieved remind
    retreat ring rings rouse rung said sealed seat steward stowed strike strikes surroundings suspicion
    suspicions tell telling thieves throws trial twin twins undertaker undertakers unfailing unsaid unseal
    unseat untold urge vigil visitor visitors welcome whereabouts whoever wish wished wishes
    """.split()
)


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
