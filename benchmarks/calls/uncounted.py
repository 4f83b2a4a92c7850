"""A copy of courier that counts nothing, to measure what counting costs.

Counters cannot be turned off. So the copy, a package called `uncounted`, is made of courier's own
sources without the statements that count and without what was computed for them alone.
"""

from __future__ import annotations

import ast
from pathlib import Path

from benchmarks.calls.worker import ROOT

PACKAGE = "uncounted"
_COUNTS = "counts"  # what courier calls the counters of a method, wherever it counts
_FOR_COUNTS = {_COUNTS, "began", "took_s", "bucket", "n_in", "n_out"}


def write_copy(directory: Path) -> int:
    """Writes the package there; returns how many statements it lacks."""
    source = ROOT / "launchpad" / "courier"
    lacks = 0
    for path in source.rglob("*.py"):
        tree = ast.parse(path.read_text().replace("launchpad.courier", PACKAGE))
        stripper = _Stripper()
        copy = directory / PACKAGE / path.relative_to(source)
        copy.parent.mkdir(parents=True, exist_ok=True)
        copy.write_text(ast.unparse(ast.fix_missing_locations(stripper.visit(tree))))
        lacks += stripper.lacks
    return lacks


class _Stripper(ast.NodeTransformer):
    """Takes the counting out of every function."""

    def __init__(self) -> None:
        self.lacks = 0

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.FunctionDef:
        if node.name == "finish":  # of the counters themselves
            return node
        self.generic_visit(node)
        while dead := _dead_stores(node):
            _Dropper(dead).visit(node)
        return node

    def visit_AugAssign(self, node: ast.AugAssign) -> ast.stmt:
        return self._without(node, node.target)

    def visit_Expr(self, node: ast.Expr) -> ast.stmt:
        return self._without(node, node.value.func) if isinstance(node.value, ast.Call) else node

    def _without(self, node: ast.stmt, what: ast.expr) -> ast.stmt:
        if not _is_of_counts(what):
            return node
        self.lacks += 1
        return ast.copy_location(ast.Pass(), node)


def _is_of_counts(what: ast.expr) -> bool:
    """`counts.errors`, `counts.buckets[i]`, `self.counts.finish`: a part of the counters."""
    while isinstance(what, ast.Attribute | ast.Subscript):
        what = what.value
        if isinstance(what, ast.Attribute) and what.attr == _COUNTS:
            return True
    return isinstance(what, ast.Name) and what.id == _COUNTS


class _Dropper(ast.NodeTransformer):
    def __init__(self, dead: set[str]) -> None:
        self._dead = dead

    def visit_Assign(self, node: ast.Assign) -> ast.stmt:
        return ast.copy_location(ast.Pass(), node) if _target(node) in self._dead else node


def _dead_stores(function: ast.FunctionDef) -> set[str]:
    nodes = list(ast.walk(function))
    stored = {_target(node) for node in nodes if isinstance(node, ast.Assign)}
    loaded = {
        node.id for node in nodes if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load)
    }
    return (stored & _FOR_COUNTS) - loaded


def _target(node: ast.Assign) -> str:
    target = node.targets[0]
    return target.id if isinstance(target, ast.Name) else ""
