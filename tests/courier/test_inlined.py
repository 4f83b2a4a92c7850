"""Copies of short functions, which hot paths have instead of calls, still do what the originals do.

A comment above a copy names the call that it stands for, with `self` as the first argument:

    # INLINE: MethodCounts.finish(counts, took_s, n_in, n_out)
"""

from __future__ import annotations

import ast
import copy
import re
from dataclasses import dataclass
from pathlib import Path

import pytest

from launchpad import courier

PACKAGE = Path(courier.__file__).parent
SOURCES = {path.relative_to(PACKAGE).as_posix(): path.read_text() for path in PACKAGE.rglob("*.py")}
#: Methods by `Class.method`.
METHODS = {
    f"{cls.name}.{method.name}": method
    for source in SOURCES.values()
    for cls in ast.walk(ast.parse(source))
    if isinstance(cls, ast.ClassDef)
    for method in cls.body
    if isinstance(method, ast.FunctionDef)
}


@dataclass(frozen=True)
class Mark:
    file: str
    line: int
    call: str


MARKS = [
    Mark(file, number, match[1])
    for file, source in sorted(SOURCES.items())
    for number, line in enumerate(source.splitlines(), 1)
    if (match := re.search(r"# INLINE: (.*)", line))
]


class Substitution(ast.NodeTransformer):
    """Replaces parameters by the arguments of a call."""

    def __init__(self, arguments: dict[str, ast.expr]) -> None:
        self.arguments = arguments

    def visit_Name(self, node: ast.Name) -> ast.expr:
        return self.arguments.get(node.id, node)


def original(call: str) -> list[str]:
    """Statements of the function that is called, with the arguments of this call."""
    parsed = ast.parse(call, mode="eval").body
    assert isinstance(parsed, ast.Call)
    method = copy.deepcopy(METHODS[ast.unparse(parsed.func)])
    parameters = [parameter.arg for parameter in method.args.args]
    arguments = Substitution(dict(zip(parameters, parsed.args, strict=True)))
    body = method.body[1:] if ast.get_docstring(method) is not None else method.body
    statements = [ast.unparse(arguments.visit(statement)) for statement in body]
    return [each for each in statements if not each.endswith(" += 0")]  # these do nothing


def following(mark: Mark, n: int) -> list[str]:
    """The `n` statements below a comment."""
    for node in ast.walk(ast.parse(SOURCES[mark.file])):
        for name in ("body", "orelse", "finalbody"):
            block = getattr(node, name, None)
            if isinstance(block, list):
                lines = [statement.lineno for statement in block]
                if mark.line + 1 in lines:
                    first = lines.index(mark.line + 1)
                    return [ast.unparse(statement) for statement in block[first : first + n]]
    return []


@pytest.mark.parametrize("mark", MARKS, ids=lambda mark: f"{mark.file}:{mark.line}")
def test_a_copy_has_the_statements_of_its_original(mark: Mark) -> None:
    expected = original(mark.call)

    assert following(mark, len(expected)) == expected


def test_no_copy_of_the_end_of_a_call_is_unmarked() -> None:
    ends = [source.count(".buckets[bucket] += 1") for source in SOURCES.values()]
    marks = [mark for mark in MARKS if mark.call.startswith("MethodCounts.finish(")]

    assert sum(ends) == 1 + len(marks)
