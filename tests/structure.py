"""What the house looks like, in figures: `python -m tests.structure [PACKAGE]` prints them for any package.

A room is a folder of modules without folders in it; a module beside folders is a room of its own. Imports
are all of them: those inside functions and those for type checkers, too.
"""

from __future__ import annotations

import ast
import re
import statistics
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

Function = ast.FunctionDef | ast.AsyncFunctionDef


def modules(package: Path) -> dict[str, Path]:
    """Dotted name below the package → file. The package itself is the empty name."""
    return {
        ".".join(p.relative_to(package).with_suffix("").parts)
        .removesuffix("__init__")
        .rstrip("."): p
        for p in sorted(package.rglob("*.py"))
    }


def imports(package: Path) -> Iterator[tuple[str, str]]:
    """Importing module, imported module; names below the package."""
    known = modules(package)
    for name, path in known.items():
        for node in ast.walk(ast.parse(path.read_text())):
            for imported in _imported(node, package.name, known) - {name}:
                yield name, imported


def _imported(node: ast.AST, package: str, known: dict[str, Path]) -> set[str]:
    if isinstance(node, ast.Import):
        dotted = [alias.name for alias in node.names]
    elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
        inside = node.module.removeprefix(package).lstrip(".")
        dotted = [
            f"{node.module}.{a.name}" if f"{inside}.{a.name}".lstrip(".") in known else node.module
            for a in node.names
        ]
    else:
        dotted = []
    below = {name.removeprefix(f"{package}.") for name in dotted if name.startswith(f"{package}.")}
    return {name for name in below if name in known}


def rooms(package: Path) -> dict[str, str]:
    """Module → its room."""
    known = modules(package)
    folders = {name.rpartition(".")[0] for name in known if "." in name}
    with_folders = {folder.rpartition(".")[0] for folder in folders if "." in folder} | {""}
    is_package = {name for name, path in known.items() if path.name == "__init__.py"}

    def room(name: str) -> str:
        folder = name if name in is_package else name.rpartition(".")[0]
        return name if folder in with_folders else folder

    return {name: room(name) for name in known}


def circles(arrows: Iterable[tuple[str, str]]) -> list[set[str]]:
    """Groups of nodes each of which reaches all others of its group (Tarjan 1972); groups of one left out."""
    targets: dict[str, set[str]] = {}
    for source, target in arrows:
        targets.setdefault(source, set()).add(target)
        targets.setdefault(target, set())

    def reached(start: str) -> set[str]:
        seen: set[str] = set()
        ahead = [start]
        while ahead:
            new = targets[ahead.pop()] - seen
            seen |= new
            ahead.extend(new)
        return seen

    reach = {node: reached(node) for node in targets}
    found = {frozenset({a} | {b for b in reach[a] if a in reach[b]}) for a in targets}
    return sorted((set(group) for group in found if len(group) > 1), key=len, reverse=True)


def arrows_up(arrows: Mapping[tuple[str, str], int]) -> int:
    """Imports against the order of rooms that has the fewest of them, as far as a greedy search finds it.

    Source: Eades, Lin and Smyth, "A fast and effective heuristic for the feedback arc set problem" (1993).
    """
    left = dict(arrows)
    upper: list[str] = []
    lower: list[str] = []
    nodes = {node for arrow in left for node in arrow}
    while nodes:
        out_of, into = Counter[str](), Counter[str]()
        for (source, target), number in left.items():
            out_of[source] += number
            into[target] += number
        bottom = next((n for n in sorted(nodes) if not out_of[n]), None)
        chosen = bottom or max(sorted(nodes), key=lambda n: out_of[n] - into[n])
        (lower if bottom else upper).append(chosen)
        nodes.remove(chosen)
        left = {arrow: number for arrow, number in left.items() if chosen not in arrow}
    rank = {node: n for n, node in enumerate(upper + lower[::-1])}
    return sum(number for (a, b), number in arrows.items() if rank[a] > rank[b])


def functions(package: Path) -> Iterator[tuple[Path, Function]]:
    """All functions and methods, nested ones too."""
    for path in package.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, Function):
                yield path, node


def once_called(package: Path) -> list[tuple[Path, Function]]:
    """Private functions of at most 5 lines of body that their module names exactly once."""
    named: Counter[tuple[Path, str]] = Counter()
    for path in package.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Name):
                named[path, node.id] += 1
            elif isinstance(node, ast.Attribute):
                named[path, node.attr] += 1
    return [
        (path, node)
        for path, node in functions(package)
        if re.match(r"_[^_]", node.name) and named[path, node.name] == 1 and _body(node) <= 5
    ]


def _body(node: Function) -> int:
    first = node.body[1:] if ast.get_docstring(node) is not None else node.body
    return (node.end_lineno or 0) - first[0].lineno + 1 if first else 0


def twice_named_classes(package: Path) -> dict[str, list[Path]]:
    """Classes of one name, nested ones too, and the files they stand in."""
    found: dict[str, list[Path]] = {}
    for path in package.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ClassDef):
                found.setdefault(node.name, []).append(path)
    return {name: paths for name, paths in sorted(found.items()) if len(paths) > 1}


def main(package: Path) -> None:
    """Prints the figures."""
    files = [p for p in package.rglob("*.py") if p.name != "__init__.py"]
    lines = sum(len(p.read_text().splitlines()) for p in package.rglob("*.py"))
    sizes = sorted((n.end_lineno or 0) - n.lineno + 1 for _, n in functions(package))
    room_of = rooms(package)
    arrows = Counter(
        (room_of[a], room_of[b]) for a, b in set(imports(package)) if a and room_of[a] != room_of[b]
    )
    knots = circles(arrows)
    names = Counter(p.name for p in files)
    print(f"files (without __init__)             {len(files)}")
    print(f"lines                                {lines}")
    print(f"functions                            {len(sizes)}")
    print(f"lines of a function, median          {statistics.median(sizes):g}")
    print(f"lines of a function, p90             {sizes[len(sizes) * 9 // 10]}")
    print(f"private, called once, <= 5 lines     {len(once_called(package))}")
    print(f"rooms                                {len(set(room_of.values()))}")
    print(f"circles across rooms                 {len(knots)} {[len(k) for k in knots]}")
    print(f"arrows up                            {arrows_up(arrows)}")
    print(f"file names that occur twice          {sorted(n for n, c in names.items() if c > 1)}")
    print(f"classes of one name                  {sorted(twice_named_classes(package))}")


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "launchpad"))
