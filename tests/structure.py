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


HEADLESS = re.compile(
    r"(What|Whether|Who|How|Where|When|The same|That of|Of|Besides|Until|Such|Those)\b"
)
MOST_ATTRIBUTES = 15


def parallel_assignments(package: Path) -> list[tuple[Path, int]]:
    """File and line of each `a, b = x, y`. A swap, `a, b = b, a`, isn't one."""
    return [
        (path, node.lineno)
        for path, node in _nodes(package)
        if isinstance(node, ast.Assign)
        and isinstance(node.targets[0], ast.Tuple)
        and isinstance(node.value, ast.Tuple)
        and {ast.unparse(e) for e in node.targets[0].elts}
        != {ast.unparse(e) for e in node.value.elts}
    ]


def walruses(package: Path) -> list[tuple[Path, int]]:
    """File and line of each `:=`."""
    return [
        (path, node.lineno) for path, node in _nodes(package) if isinstance(node, ast.NamedExpr)
    ]


def docstrings(package: Path) -> list[tuple[Path, int, str]]:
    """File, line and first line of each docstring of a module, class or function."""
    documented = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef
    return [
        (path, getattr(node, "lineno", 1), text.splitlines()[0])
        for path, node in _nodes(package)
        if isinstance(node, documented) and (text := ast.get_docstring(node))
    ]


def headless_docstrings(package: Path) -> list[tuple[Path, int, str]]:
    """Those docstrings whose first line is no statement: it begins with "What", "Whether" and the like."""
    return [each for each in docstrings(package) if HEADLESS.match(each[2])]


def attributes(of: ast.ClassDef) -> set[str]:
    """Names of a class's fields, and of what its methods assign to `self`."""
    fields = {
        node.target.id
        for node in of.body
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name)
    }
    assigned = {
        node.attr
        for node in ast.walk(of)
        if isinstance(node, ast.Attribute)
        and isinstance(node.ctx, ast.Store)
        and isinstance(node.value, ast.Name)
        and node.value.id == "self"
    }
    return fields | assigned


def large_classes(package: Path) -> dict[str, int]:
    """Class → number of its attributes, of those with more than MOST_ATTRIBUTES; the largest first."""
    sizes = {
        node.name: len(attributes(node))
        for _, node in _nodes(package)
        if isinstance(node, ast.ClassDef)
    }
    large = {name: size for name, size in sizes.items() if size > MOST_ATTRIBUTES}
    return dict(sorted(large.items(), key=lambda item: -item[1]))


def log_calls(package: Path) -> list[tuple[Path, int]]:
    """File and line of each call of a logger's `debug` or `info`."""
    return [
        (path, node.lineno)
        for path, node in _nodes(package)
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr in ("debug", "info")
        and "log" in ast.unparse(node.func.value).lower()
    ]


def circles_of_files(package: Path) -> list[set[str]]:
    """Files that import each other, lazy imports and those for type checkers included."""
    return circles((a, b) for a, b in set(imports(package)) if a)


def _nodes(package: Path) -> Iterator[tuple[Path, ast.AST]]:
    for path in sorted(package.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            yield path, node


def main(package: Path) -> None:
    """Print the figures."""
    files = [p for p in package.rglob("*.py") if p.name != "__init__.py"]
    lines = sum(len(p.read_text().splitlines()) for p in package.rglob("*.py"))
    sizes = sorted((n.end_lineno or 0) - n.lineno + 1 for _, n in functions(package))
    room_of = rooms(package)
    arrows = Counter(
        (room_of[a], room_of[b]) for a, b in set(imports(package)) if a and room_of[a] != room_of[b]
    )
    knots = circles(arrows)
    knots_of_files = circles_of_files(package)
    documented = len(docstrings(package))
    headless = len(headless_docstrings(package))
    large = large_classes(package)
    names = Counter(p.name for p in files)
    print(f"files (without __init__)             {len(files)}")
    print(f"lines                                {lines}")
    print(f"functions                            {len(sizes)}")
    print(f"lines of a function, median          {statistics.median(sizes):g}")
    print(f"lines of a function, p90             {sizes[len(sizes) * 9 // 10]}")
    print(f"private, called once, <= 5 lines     {len(once_called(package))}")
    print(
        f"parallel assignments per 1,000 lines {len(parallel_assignments(package)) / lines * 1000:.1f}"
    )
    print(f"walruses                             {len(walruses(package))}")
    print(
        f"docstrings, headless                 {headless} of {documented} ({headless / documented:.1%})"
    )
    print(f"classes of more than {MOST_ATTRIBUTES} attributes   {len(large)} {large}")
    print(f"log calls, debug or info             {len(log_calls(package))}")
    print(
        f"circles of files                     {len(knots_of_files)} {[len(k) for k in knots_of_files]}"
    )
    print(f"rooms                                {len(set(room_of.values()))}")
    print(f"circles across rooms                 {len(knots)} {[len(k) for k in knots]}")
    print(f"arrows up                            {arrows_up(arrows)}")
    print(f"file names that occur twice          {sorted(n for n, c in names.items() if c > 1)}")
    print(f"classes of one name                  {sorted(twice_named_classes(package))}")


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "launchpad"))
